"""The client's side of judging: lines of an answer as they come, and all of them as one result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from pydantic import ValidationError

from ..schemas.errors import ErrorKind, SandboxError, ToolError
from ..schemas.judge import CheckerComparison, JudgeLine, JudgeRequest, JudgeResult, Verdict

_SHOWN_BYTES = 200


def longest_s(request: JudgeRequest) -> float:
    """Seconds that judging may take, one test after the other, without the queue."""
    checker = request.comparison.limits if isinstance(request.comparison, CheckerComparison) else None
    each_s = request.limits.wall_s + (checker.wall_s if checker else 0.0)
    compile_s = request.limits.compile_wall_s + (checker.compile_wall_s if checker else 0.0)
    return compile_s + len(request.tests) * each_s


async def parsed(chunks: AsyncIterator[bytes], url: str) -> AsyncGenerator[JudgeLine, None]:
    """The lines of an answer whose bytes come in `chunks`.

    Raises:
        ToolError: (kind `arguments`) the request turned out to be at fault.
        SandboxError: the answer ended early, or is something else than the judge's.
    """
    last = JudgeLine()
    async for text in _split(chunks):
        try:
            last = JudgeLine.model_validate_json(text)
        except ValidationError:
            shown = text[:_SHOWN_BYTES].decode(errors="replace")
            raise SandboxError(f"{url} answered with something else than a line of the judge: {shown}") from None
        if last.error is not None:
            if last.error.kind is ErrorKind.ARGUMENTS:
                raise ToolError(last.error.detail, last.error.kind)
            raise SandboxError(f"{url}: {last.error.detail}")
        yield last
    if last.summary is None:
        raise SandboxError(f"{url} stopped before the judging had ended")


async def _split(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Whole lines, however long: aiohttp's own reader of lines gives up at 128 KiB."""
    begun: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for text in others:
            yield b"".join(begun)
            begun = [text]


async def collected(lines: AsyncIterator[JudgeLine]) -> JudgeResult:
    """All lines of an answer as one result.

    Raises:
        SandboxError: a test failed through us, so that the whole says nothing about the program.
    """
    found = [line async for line in lines]
    compiled = next(line.compiled for line in found if line.compiled is not None)
    tests = sorted((line.test for line in found if line.test is not None), key=lambda test: test.index)
    summary = found[-1].summary
    assert summary is not None  # `parsed` sees to it
    if summary.verdict is Verdict.INFRA:
        why = next((f"test {test.index}: {test.message}" for test in tests if test.verdict is Verdict.INFRA), "")
        raise SandboxError(f"the sandbox failed while judging: {why}")
    return JudgeResult(
        verdict=summary.verdict, passed=summary.passed, total=summary.total, compiled=compiled, tests=tests
    )
