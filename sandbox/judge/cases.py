"""One test: what its run is given, and what the run's result means."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...schemas.errors import ToolError
from ...schemas.judge import CallTest, CheckerComparison, StdioTest, TestResult, Verdict
from ...schemas.run import RunRequest, RunResult, RunStatus
from .compare import TextComparison, same_text, same_value

T = TypeVar("T")
_VERDICTS = {
    RunStatus.ERROR: Verdict.RUNTIME_ERROR,
    RunStatus.TIMEOUT: Verdict.TIME_LIMIT,
    RunStatus.MEMORY: Verdict.MEMORY_LIMIT,
    RunStatus.OUTPUT_LIMIT: Verdict.OUTPUT_LIMIT,
}
_MESSAGE_CHARS = 2000
# Comparing more than this takes longer than the event loop may be held up.
_LARGE_CHARS = 262_144


@dataclass(frozen=True, slots=True)
class Checker:
    """A checker that is ready to run. `crash`: pattern of an uncaught error in its language."""

    request: RunRequest
    run: Callable[[RunRequest], Awaitable[RunResult]]
    crash: str


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a request."""

    index: int
    test: StdioTest | CallTest
    comparison: TextComparison | CheckerComparison
    checker: Checker | None
    shown_chars: int

    def stdin(self) -> str:
        test = self.test
        if isinstance(test, StdioTest):
            return test.stdin
        return json.dumps([test.function, test.arguments, test.keyword_arguments])

    async def verdict(self, result: RunResult) -> TestResult:
        """What a run of the program with `stdin` comes to.

        Raises:
            OverloadedError, SandboxError: the checker could not be run.
        """
        verdict, message = _VERDICTS.get(result.status, Verdict.ACCEPTED), ""
        if verdict is Verdict.ACCEPTED:
            verdict, message = await self._compared(result.stdout)
        return TestResult(
            index=self.index,
            verdict=verdict,
            run_ms=result.run_ms,
            cpu_ms=result.cpu_ms,
            peak_memory_mb=result.peak_memory_mb,
            exit_code=result.exit_code,
            signal=result.signal,
            stdout=shown(result.stdout, self.shown_chars),
            stderr=shown(result.stderr, self.shown_chars),
            message=message,
        )

    async def _compared(self, output: str) -> tuple[Verdict, str]:
        test, large = self.test, len(output) >= _LARGE_CHARS
        if isinstance(test, CallTest) and not output:
            return Verdict.RUNTIME_ERROR, f"the program ended before {test.function} returned"
        if isinstance(test, StdioTest) and test.expected_stdout is None:
            return Verdict.ACCEPTED, ""
        if self.checker is not None:
            return await self._checked(self.checker, output)
        assert not isinstance(self.comparison, CheckerComparison)
        if isinstance(test, StdioTest):
            expected = test.expected_stdout or ""
            large |= len(expected) >= _LARGE_CHARS
            same = await _away(large, same_text, output, expected, self.comparison)
        else:
            try:
                value = await _away(large, json.loads, output)
            except (ValueError, RecursionError):
                return Verdict.RUNTIME_ERROR, "the program wrote to where the value of the call was expected"
            same = await _away(large, _one_of, value, (test.expected, *test.also_accepted), self.comparison)
        return (Verdict.ACCEPTED if same else Verdict.WRONG_ANSWER), ""

    async def _checked(self, checker: Checker, output: str) -> tuple[Verdict, str]:
        test = self.test
        if isinstance(test, StdioTest):
            given, expected = test.stdin, test.expected_stdout or ""
        else:
            given, expected = json.dumps([test.arguments, test.keyword_arguments]), json.dumps(test.expected)
        texts = {"input": given, "output": output, "expected": expected}
        large = sum(map(len, texts.values())) >= _LARGE_CHARS
        files = await _away(large, _as_files, texts, checker.request.files)
        request = checker.request.model_copy(update={"files": files})
        try:
            result = await checker.run(request)
        except ToolError as error:  # its work dir cannot hold the three files
            return Verdict.CHECKER_ERROR, str(error)
        message = shown(result.stderr or result.stdout, _MESSAGE_CHARS)
        if result.status is RunStatus.OK:
            return Verdict.ACCEPTED, message
        by_itself = result.status is RunStatus.ERROR and result.exit_code == 1
        if by_itself and not re.search(checker.crash, result.stderr):
            return Verdict.WRONG_ANSWER, message
        ended = f"exit code {result.exit_code}" if result.signal is None else f"signal {result.signal}"
        return Verdict.CHECKER_ERROR, f"the checker ended with status {result.status}, {ended}: {message}"


def shown(text: str, chars: int) -> str:
    """`text`, cut in the middle when it is longer than `chars`."""
    if len(text) <= chars:
        return text
    head, tail = text[: chars - chars // 2], text[len(text) - chars // 2 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


async def _away(large: bool, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, in another thread if its arguments are large."""
    return await asyncio.to_thread(function, *arguments) if large else function(*arguments)


def _one_of(value: Any, wanted: tuple[Any, ...], comparison: TextComparison) -> bool:
    return any(same_value(value, each, comparison) for each in wanted)


def _as_files(texts: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {**others, **{name: base64.b64encode(text.encode()).decode("ascii") for name, text in texts.items()}}
