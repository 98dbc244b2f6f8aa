"""Programs that try to cheat the judge, and our own failures in the middle of judging."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.command import Command
from rollbox.sandbox.judge.judge import Judge, summary
from rollbox.sandbox.judge.replay import Replay
from rollbox.sandbox.metrics import Metrics
from rollbox.sandbox.runs import Runs
from rollbox.sandbox.settings import SandboxSettings
from rollbox.sandbox.siblings import Siblings
from rollbox.sandbox.toolchains import Toolchains
from rollbox.sandbox.zygote_pool import ZygotePool
from rollbox.schemas.errors import OverloadedError, SandboxError
from rollbox.schemas.judge import JudgeLine, JudgeRequest, Verdict
from rollbox.schemas.run import RunRequest, RunResult

from .server_process import ServerProcess, processes_with, serving, until


async def _judged(sandbox: Sandbox, code: str, tests: list[dict[str, Any]], **fields: Any) -> list[Any]:
    result = await sandbox.judge(JudgeRequest.model_validate({"code": code, "tests": tests, **fields}))
    return result.tests


# --- cheating ---

LOOK_EVERYWHERE = """
import os, re, sys
pattern = re.compile(rb"secret-[0-9a-f]{8}-" + input().encode())
found = set()

def look(fd, start=0, end=1 << 20):
    while start < end:
        try:
            data = os.pread(fd, min(end - start, 1 << 20), start)
        except (OSError, OverflowError):
            return
        found.update(pattern.findall(data))
        if len(data) <= 100:
            return
        start += len(data) - 100

found.update(pattern.findall(repr((os.environb, sys.argv, sys.orig_argv)).encode()))
for number in range(3, 256):
    look(number)
for folder in ("/workspace", "/tmp", "/dev/shm", "/proc/self/task", "/proc/1", "/etc", "/run", "/var"):
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                fd = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            look(fd)
            os.close(fd)
memory = os.open("/proc/self/mem", os.O_RDONLY)
for line in open("/proc/self/maps").readlines():
    start, end, mode = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\\S+)", line).groups()
    if mode.startswith("rw"):
        look(memory, int(start, 16), int(end, 16))
print(sorted(found)[0].decode() if found else "nothing")
"""


async def test_what_is_expected_is_nowhere_to_be_found(sandbox: Sandbox) -> None:
    marker = uuid.uuid4().hex
    tests = [{"stdin": marker, "expected_stdout": f"secret-{n:08x}-{marker}"} for n in range(6)]
    results = await _judged(sandbox, LOOK_EVERYWHERE, tests, limits={"wall_s": 60})
    assert [(result.verdict, result.stdout) for result in results] == [("wrong_answer", "nothing\n")] * 6, results


async def test_the_search_would_find_it(sandbox: Sandbox) -> None:
    marker = uuid.uuid4().hex
    code = f"hidden = 'secret-' + '{1:08x}' + '-{marker}'\n{LOOK_EVERYWHERE}"
    results = await _judged(sandbox, code, [{"stdin": marker, "expected_stdout": f"secret-{1:08x}-{marker}"}])
    assert results[0].verdict == "accepted", results


async def test_tests_do_not_see_each_other(sandbox: Sandbox) -> None:
    code = """
import builtins, glob, os, socket, sys
state = [name for folder in ("/workspace", "/tmp", "/dev/shm") for name in glob.glob(folder + "/left*")]
state += [name for name in ("left", ) if hasattr(builtins, name) or name in sys.modules]
state += [name for name in os.environ if name.startswith("LEFT")]
try:
    server = socket.socket(socket.AF_UNIX); server.bind("\\0left"); server.listen()
except OSError:
    state.append("socket")
state += [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
builtins.left = sys.modules["left"] = sys
os.environ["LEFT"] = "x"
for folder in ("/workspace", "/tmp", "/dev/shm"):
    open(folder + "/left", "w").write("x"); os.mkdir(folder + "/left-too")
if os.fork() == 0:
    os.setsid(); os.close(1); os.close(2)
    import time; time.sleep(60)
print(state)
"""
    results = await _judged(sandbox, code, [{"expected_stdout": "[]"}] * 24)
    assert {(result.verdict, result.stdout) for result in results} == {("accepted", "[]\n")}, results


async def test_a_program_that_kills_all_it_can_spoils_only_its_own_test(sandbox: Sandbox) -> None:
    code = """
import os, signal
if input() == "attack":
    for pid in (1, 0, -1, os.getppid()):
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
print("fine")
"""
    words = ["fine", "attack"] * 6
    results = await _judged(sandbox, code, [{"stdin": word, "expected_stdout": "fine"} for word in words])
    assert [result.verdict for result in results] == ["accepted", "runtime_error"] * 6


async def test_a_program_cannot_reach_the_code_that_others_run(sandbox: Sandbox) -> None:
    tests = [{"function": "f", "expected": 1}]
    replacing = """
import builtins, json, marshal, os, sys
json.dumps = lambda *_, **__: "2"
builtins.compile = builtins.exec = marshal.loads = os.write = lambda *_, **__: None
sys.modules["json"] = None
def f(): return 1
"""
    assert (await _judged(sandbox, replacing, tests))[0].verdict == "accepted"
    assert (await _judged(sandbox, "def f(): return 1", tests * 8))[7].verdict == "accepted"


# Bytecode that reads far outside of its constants, as nothing that Python compiles does.
WILD = """
def f(): return 1
code = f.__code__.replace(co_code=bytes([100, 255]) * 400 + bytes([83, 0]), co_consts=())
f.__code__ = code
"""


async def test_wild_bytecode_ends_its_own_test(sandbox: Sandbox) -> None:
    results = await _judged(sandbox, WILD, [{"function": "f", "expected": 1}] * 4)
    assert {result.verdict for result in results} <= {"runtime_error", "wrong_answer"}
    assert (await _judged(sandbox, "print(1)", [{"expected_stdout": "1"}]))[0].verdict == "accepted"


# --- our own failures ---


def _zygotes(server: ServerProcess) -> set[int]:
    """Those of a server: the children of its spawners."""
    return {child for spawner in _children(server.process.pid) for child in _children(spawner)}


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found |= set(map(int, (task / "children").read_text().split()))
    return found


async def test_zygotes_that_die_are_never_a_wrong_answer() -> None:
    code = "import time\ntime.sleep(0.2)\nprint(input())"
    tests = [{"stdin": str(n), "expected_stdout": str(n)} for n in range(24)]
    request = JudgeRequest.model_validate({"code": code, "tests": tests})
    verdicts: dict[int, Verdict] = {}
    with serving("--slots", "2") as server:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            async with aclosing(sandbox.judge_lines(request)) as lines:
                async for line in lines:
                    if line.test is not None:
                        verdicts[line.test.index] = line.test.verdict
                        for pid in _zygotes(server) if len(verdicts) in (2, 6, 10) else ():
                            os.kill(pid, signal.SIGKILL)
            infra = Verdict.INFRA in verdicts.values()
            assert line.summary is not None
            assert line.summary.verdict == (Verdict.INFRA if infra else Verdict.ACCEPTED)
            assert len(verdicts) == 24
            assert set(verdicts.values()) <= {Verdict.ACCEPTED, Verdict.INFRA}
            assert (await _judged(sandbox, "print(2)", [{"expected_stdout": "2"}]))[0].verdict == "accepted"


class FailingPool(ZygotePool):
    """A real pool, which fails at runs of the test's choice before they begin."""

    def __init__(self, errors: dict[str, list[Exception]]) -> None:
        super().__init__(slots=2, queue=100)
        self._errors = errors

    async def run(self, request: RunRequest, command: Command | None = None, code_object: bytes = b"") -> RunResult:
        errors = self._errors.get(request.stdin or "")
        if errors:
            raise errors.pop(0)
        return await super().run(request, command, code_object)


async def _lines(pool: ZygotePool, request: JudgeRequest) -> list[JudgeLine]:
    settings = SandboxSettings(slots=2)
    judge = Judge(Runs(pool, settings, Metrics(pool), Toolchains(), Siblings()))
    return [line async for line in judge.lines(request)]


REQUEST = JudgeRequest.model_validate(
    {"code": "print(input())", "tests": [{"stdin": str(n), "expected_stdout": str(n)} for n in range(5)]}
)


async def test_passing_trouble_is_not_seen() -> None:
    errors: dict[str, list[Exception]] = {
        "1": [SandboxError("lost"), SandboxError("lost")],
        "3": [OverloadedError("full", retry_after_s=0.01) for _ in range(20)],
    }
    async with FailingPool(errors) as pool:
        lines = await _lines(pool, REQUEST)
    assert lines[-1].summary is not None
    assert (lines[-1].summary.verdict, lines[-1].summary.passed) == ("accepted", 5)
    assert errors == {"1": [], "3": []}


@pytest.mark.parametrize("stop", [False, True])
async def test_lasting_trouble_is_ours(stop: bool) -> None:
    errors: dict[str, list[Exception]] = {"2": [SandboxError("the jail broke")] * 3}
    async with FailingPool(errors) as pool:
        lines = await _lines(pool, REQUEST.model_copy(update={"stop_at_first_failure": stop}))
    tests = {line.test.index: line.test for line in lines if line.test is not None}
    assert (tests[2].verdict, tests[2].message) == ("infra", "the jail broke")
    assert lines[-1].summary is not None
    assert lines[-1].summary.verdict == "infra"
    assert {tests[index].verdict for index in (0, 1)} == {"accepted"}


async def test_what_failed_through_us_is_not_kept_for_a_repeated_key() -> None:
    replay, asked = Replay(), REQUEST.model_copy(update={"idempotency_key": "k"})
    verdicts = [Verdict.INFRA, Verdict.ACCEPTED, Verdict.WRONG_ANSWER]

    async def judge(request: JudgeRequest) -> AsyncIterator[JudgeLine]:
        yield JudgeLine(summary=summary([verdicts.pop(0)]))

    answers = [[line async for line in await replay.lines(asked, judge)] for _ in range(3)]  # type: ignore[arg-type]
    assert b'"infra"' in answers[0][0]
    assert b'"accepted"' in answers[1][0]
    assert answers[2] == answers[1]


async def test_the_client_raises_for_what_failed_through_us() -> None:
    with serving("--slots", "1") as server:
        async with Sandbox.connect(server.url, max_retries=0) as sandbox:
            marker = f"marker-{uuid.uuid4()}"
            sleep = f"[sys.executable, '-c', 'import time; time.sleep(300)', '{marker}']"
            code = f"import subprocess, sys\nsubprocess.run({sleep})"
            asking = asyncio.create_task(_judged(sandbox, code, [{}], limits={"wall_s": 300}))
            await until(lambda: len(processes_with(marker)) == 1)
            server.process.kill()
            with pytest.raises(SandboxError):
                await asking


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        (["accepted"], "accepted"),
        (["accepted", "time_limit", "wrong_answer"], "time_limit"),
        (["wrong_answer", "not_run"], "wrong_answer"),
        (["wrong_answer", "infra"], "infra"),
        (["wrong_answer", "checker_error"], "checker_error"),
        (["checker_error", "infra"], "infra"),
    ],
)
def test_the_verdict_of_the_whole(verdicts: list[str], whole: str) -> None:
    found = summary([Verdict(verdict) for verdict in verdicts])
    assert (found.verdict, found.total) == (whole, len(verdicts))
