"""Judge: compiles a program once, keeps its tests in flight, and yields a line for each as it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ...schemas.errors import ErrorKind, InfraError, OverloadedError, SandboxError, ToolError
from ...schemas.judge import (
    CallTest,
    CheckerComparison,
    JudgeError,
    JudgeLine,
    JudgeRequest,
    JudgeSummary,
    TestResult,
    Verdict,
)
from ...schemas.run import CompileResult, RunRequest, RunResult, RunStatus
from ..languages import PYTHON
from ..programs import Prepared
from ..runs import Runs
from .cases import Case, Checker, shown
from .driver import DRIVER

_ATTEMPTS = 3
_QUEUE_PATIENCE_S = 300.0
_NOT_OF_THE_PROGRAM = (Verdict.INFRA, Verdict.CHECKER_ERROR)


class Judge:
    """The judge of one server. Each test is a run like any other: its own jail, a turn in the queue, the metrics."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def check(self, request: JudgeRequest) -> None:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for what this server does not give; the text names the field.
        """
        self._runs.check(_program(request))
        is_python = self._runs.programs.toolchains.of(request.language).language.name == PYTHON
        for index, test in enumerate(request.tests):
            if isinstance(test, CallTest) and not is_python:
                text = f"tests.{index}.function: only programs in python can be called"
                raise ToolError(text, ErrorKind.ARGUMENTS)
        if isinstance(request.comparison, CheckerComparison):
            try:
                self._runs.check(_checker(request, request.comparison))
            except ToolError as error:
                raise ToolError(f"comparison.{error}", error.kind) from error

    async def lines(self, request: JudgeRequest) -> AsyncGenerator[JudgeLine, None]:
        """Judge a request that was checked. Closing the iterator ends all that still runs.

        Raises:
            ToolError: (kind `arguments`) it cannot be served as it is. Only before the first line, as all of these.
            OverloadedError: the queue is full.
            SandboxError: the program could not be compiled.
        """
        judging = _Judging(self._runs, request)
        broken = await judging.prepare_checker()
        if broken is not None:
            yield JudgeLine(error=broken)
            return
        compiled = await judging.prepare()
        yield JudgeLine(compiled=compiled)
        if compiled.status is not RunStatus.OK:
            yield JudgeLine(summary=JudgeSummary(verdict=Verdict.COMPILE_ERROR, passed=0, total=len(request.tests)))
            return
        verdicts: dict[int, Verdict] = {}
        try:
            async with aclosing(judging.results()) as results:
                async for result in results:
                    verdicts[result.index] = result.verdict
                    yield JudgeLine(test=result)
        except ToolError as error:
            yield JudgeLine(error=JudgeError(kind=error.kind, detail=str(error)))
            return
        yield JudgeLine(summary=summary([verdicts[index] for index in range(len(request.tests))]))


def summary(verdicts: list[Verdict]) -> JudgeSummary:
    """The whole, from the verdicts of the tests in their order."""
    failures = [verdict for verdict in verdicts if verdict not in (Verdict.ACCEPTED, Verdict.NOT_RUN)]
    excused = next((verdict for verdict in _NOT_OF_THE_PROGRAM if verdict in failures), None)
    verdict = excused or (failures[0] if failures else Verdict.ACCEPTED)
    return JudgeSummary(verdict=verdict, passed=verdicts.count(Verdict.ACCEPTED), total=len(verdicts))


class _Judging:
    """One request being judged."""

    def __init__(self, runs: Runs, request: JudgeRequest) -> None:
        self._runs = runs
        self._request = request
        self._program = _program(request)
        self._checker: Checker | None = None
        # Stdin and calls need a different program around the program's code.
        self._prepared: dict[str, Prepared] = {}
        self._at_a_time = max(1, runs.at_a_time // 2) if request.stop_at_first_failure else runs.at_a_time

    async def prepare(self) -> CompileResult:
        drivers = dict.fromkeys(_driver(test) for test in self._request.tests)
        for driver in drivers:
            prepared = await self._runs.programs.prepare(self._program, ahead=True, driver=driver)
            self._prepared[driver] = prepared
            if prepared.failed:
                break
        return prepared.compile or CompileResult(status=RunStatus.OK)

    async def prepare_checker(self) -> JudgeError | None:
        """Compile the checker, if there is one; returns why it cannot be."""
        comparison = self._request.comparison
        if not isinstance(comparison, CheckerComparison):
            return None
        request = _checker(self._request, comparison)
        prepared = await self._runs.programs.prepare(request, ahead=True)
        if prepared.compile is not None and prepared.failed:
            text = f"comparison.code: the checker does not compile: {shown(prepared.compile.stderr, 1000)}"
            return JudgeError(kind=ErrorKind.ARGUMENTS, detail=text)
        language = self._runs.programs.toolchains.of(comparison.language).language

        async def run(request: RunRequest) -> RunResult:
            return await self._runs.run_prepared(request, prepared)

        self._checker = Checker(request, run, language.crash)
        return None

    async def results(self) -> AsyncGenerator[TestResult, None]:
        """The results of all tests, as they come. Closing the iterator ends the tests that run."""
        request = self._request
        cases = [
            Case(index, test, request.comparison, self._checker, request.limits.output_bytes)
            for index, test in enumerate(request.tests)
        ]
        running: dict[asyncio.Task[TestResult], int] = {}
        begun, end = 0, len(cases)  # `end`: of the tests that matter
        reported = set()
        try:
            while True:
                while begun < end and len(running) < self._at_a_time:
                    running[asyncio.create_task(self._result(cases[begun]))] = begun
                    begun += 1
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=running.__getitem__):
                    index = running.pop(task)
                    if index >= end:
                        continue
                    result = task.result()
                    if request.stop_at_first_failure and result.verdict is not Verdict.ACCEPTED:
                        end = index + 1
                    reported.add(index)
                    yield result
                for task, index in running.items():
                    if index >= end:
                        task.cancel()
            for index in range(end, len(cases)):
                if index not in reported:
                    yield TestResult(index=index, verdict=Verdict.NOT_RUN)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _result(self, case: Case) -> TestResult:
        """A test that we fail at is tried again, so that only lasting trouble shows."""
        deadline_s = time.monotonic() + _QUEUE_PATIENCE_S
        failures = 0
        while True:
            try:
                given = self._program.model_copy(update={"stdin": case.stdin()})
                result = await self._runs.run_prepared(given, self._prepared[_driver(case.test)])
                return await case.verdict(result)
            except OverloadedError as error:
                if time.monotonic() + error.retry_after_s > deadline_s:
                    return _infra(case, error)
                await asyncio.sleep(error.retry_after_s)  # others fill the queue
            except SandboxError as error:
                failures += 1
                if failures == _ATTEMPTS:
                    return _infra(case, error)


def _infra(case: Case, error: InfraError) -> TestResult:
    return TestResult(index=case.index, verdict=Verdict.INFRA, message=str(error))


def _driver(test: object) -> str:
    return DRIVER if isinstance(test, CallTest) else ""


def _program(request: JudgeRequest) -> RunRequest:
    """What all runs of the program have in common. All of its output is kept, to be compared."""
    limits = request.limits
    return RunRequest(
        code=request.code,
        language=request.language,
        files=request.files,
        client=request.client,
        limits=limits.model_copy(update={"output_bytes": limits.output_kill_mb << 20}),
    )


def _checker(request: JudgeRequest, comparison: CheckerComparison) -> RunRequest:
    return RunRequest(
        code=comparison.code,
        language=comparison.language,
        args=["input", "output", "expected"],
        client=request.client,
        limits=comparison.limits,
    )
