"""The judge over HTTP and by our client: verdicts, order, comparisons, functions, checkers."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ToolError
from rollbox.schemas.judge import JudgeRequest, JudgeResult, Verdict

from .conftest import Judged
from .server_process import ServerProcess, processes_with, serving, until
from .test_languages import present

ADD = "a, b = map(int, input().split())\nprint(a + b)"
EXACT = {"kind": "exact"}


def _verdicts(result: JudgeResult) -> list[str]:
    return [test.verdict.value for test in result.tests]


async def test_a_hundred_tests(judge: Judged) -> None:
    tests = [{"stdin": f"{n} {n * n}", "expected_stdout": str(n + n * n)} for n in range(100)]
    result = await judge(ADD, tests)
    assert (result.verdict, result.passed, result.total) == ("accepted", 100, 100)
    assert [test.index for test in result.tests] == list(range(100))
    assert [test.stdout for test in result.tests] == [f"{n + n * n}\n" for n in range(100)]
    assert all(test.cpu_ms > 0 and test.run_ms > 0 and test.peak_memory_mb > 1 for test in result.tests)


async def test_every_verdict_of_a_program(judge: Judged) -> None:
    code = """
import os, signal, sys
match input():
    case "right": print("right")
    case "wrong": print("right-ish")
    case "error": print("right"); 1 / 0
    case "code": print("right"); sys.exit(3)
    case "signal": print("right", flush=True); os.kill(os.getpid(), signal.SIGSEGV)
    case "time":
        print("right")
        while True: pass
    case "memory": x = bytearray(400 << 20)
    case "output":
        while True: print("right" * 1000)
"""
    words = {
        "right": Verdict.ACCEPTED,
        "wrong": Verdict.WRONG_ANSWER,
        "error": Verdict.RUNTIME_ERROR,
        "code": Verdict.RUNTIME_ERROR,
        "signal": Verdict.RUNTIME_ERROR,
        "time": Verdict.TIME_LIMIT,
        "memory": Verdict.MEMORY_LIMIT,
        "output": Verdict.OUTPUT_LIMIT,
    }
    tests = [{"stdin": word, "expected_stdout": "right"} for word in words]
    result = await judge(code, tests, wall_s=2, memory_mb=256, output_kill_mb=1)
    assert _verdicts(result) == list(words.values())
    assert (result.verdict, result.passed) == ("wrong_answer", 1)
    assert (result.tests[3].exit_code, result.tests[4].signal) == (3, 11)
    assert "line 6" in result.tests[2].stderr
    assert result.tests[5].stdout == "right\n"


async def test_the_first_failure_gives_the_whole_its_verdict(judge: Judged) -> None:
    result = await judge("n = int(input()); print(1 / n if n < 9 else n)", [{"stdin": str(n)} for n in (0, 1)])
    assert (result.verdict, _verdicts(result)) == ("runtime_error", ["runtime_error", "wrong_answer"])


async def test_stop_at_the_first_failure(judge: Judged) -> None:
    code = "n = int(input())\nprint(n if n != 5 else 'five')"
    tests = [{"stdin": str(n), "expected_stdout": str(n)} for n in range(60)]
    result = await judge(code, tests, stop_at_first_failure=True)
    assert (result.verdict, result.total) == ("wrong_answer", 60)
    assert _verdicts(result)[:6] == ["accepted"] * 5 + ["wrong_answer"]
    # Of those behind it, no more than were in flight with it had begun.
    assert set(_verdicts(result)[6:10]) <= {"accepted", "not_run"}
    assert _verdicts(result)[10:] == ["not_run"] * 50


async def test_of_several_failures_the_first_by_number_counts(judge: Judged) -> None:
    code = "import time\nn = int(input())\nif n == 0: time.sleep(1)\nif n == 1: 1 / 0\nprint('no')"
    tests = [{"stdin": str(n), "expected_stdout": "yes"} for n in range(3)]
    result = await judge(code, tests, stop_at_first_failure=True)
    assert (result.verdict, _verdicts(result)[0]) == ("wrong_answer", "wrong_answer")


async def test_the_whole_output_is_compared_and_a_part_of_it_sent_back(judge: Judged) -> None:
    code = "n = int(input())\nprint('x' * 500_000 + str(n) + 'y' * 500_000)"
    right = "x" * 500_000 + "1" + "y" * 500_000
    result = await judge(code, [{"stdin": "1", "expected_stdout": right}, {"stdin": "2", "expected_stdout": right}])
    assert _verdicts(result) == ["accepted", "wrong_answer"]
    assert len(result.tests[0].stdout) < 2200
    assert "characters left out" in result.tests[0].stdout


async def test_files_are_there_fresh_in_each_test(judge: Judged) -> None:
    code = "print(open('n').read()); open('n', 'w').write('changed'); import helper; print(helper.word)"
    files = {"n": b"7", "helper.py": b"word = 'hello'"}
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    result = await judge(code, [{"expected_stdout": "7\nhello"}] * 8, files=encoded)
    assert result.passed == 8, result


# --- compiling ---


async def test_a_python_program_that_does_not_compile(judge: Judged) -> None:
    result = await judge("def f(:\n    pass", [{"stdin": "1"}] * 3)
    assert (result.verdict, result.passed, result.total, result.tests) == ("compile_error", 0, 3, [])
    assert (result.compiled.status, result.compiled.exit_code) == ("error", 1)
    assert result.compiled.stderr == (
        '  File "/workspace/main.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
    )


async def test_a_python_program_that_takes_all_to_compile(judge: Judged) -> None:
    result = await judge("x = " + "-" * 200_000 + "1", [{}])
    assert (result.verdict, result.compiled.status) == ("compile_error", "memory")
    assert (await judge("x = ((1,) * 9,) * 9\nprint(len(x))", [{"expected_stdout": "9"}])).verdict == "accepted"


@pytest.mark.parametrize("language", present("cpp", "java", "javascript", "bash"))
async def test_other_languages(judge: Judged, language: str) -> None:
    code = {
        "cpp": "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }",
        "java": "class S { public static void main(String[] x) { var s = new java.util.Scanner(System.in);"
        "System.out.println(s.nextInt() + s.nextInt()); } }",
        "javascript": "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number); console.log(a + b)",
        "bash": "read a b; echo $((a + b))",
    }[language]
    tests = [{"stdin": f"{n} 1", "expected_stdout": str(n + 1)} for n in range(6)]
    tests.append({"stdin": "1 1", "expected_stdout": "3"})
    result = await judge(code, tests, language=language)
    assert (result.verdict, result.passed) == ("wrong_answer", 6), result


@pytest.mark.parametrize("language", present("cpp"))
async def test_a_compile_error_ends_it(judge: Judged, language: str) -> None:
    result = await judge("int main() { undeclared(); }", [{}, {}], language=language)
    assert (result.verdict, result.tests) == ("compile_error", [])
    assert "undeclared" in result.compiled.stderr


# --- comparisons ---


@pytest.mark.parametrize(
    ("comparison", "verdicts"),
    [
        (EXACT, ["accepted", "wrong_answer", "wrong_answer", "wrong_answer"]),
        ({"kind": "tokens"}, ["accepted", "accepted", "wrong_answer", "wrong_answer"]),
        ({"kind": "float"}, ["accepted", "accepted", "accepted", "wrong_answer"]),
        ({"kind": "float", "rel": 0.1}, ["accepted"] * 4),
    ],
)
async def test_comparisons(judge: Judged, comparison: dict[str, Any], verdicts: list[str]) -> None:
    tests = [{"expected_stdout": text} for text in ("a 1.0\n", "a\n1.0", "a 1.00000001", "a 1.05")]
    assert _verdicts(await judge("print('a 1.0')", tests, comparison=comparison)) == verdicts


# --- bad input ---


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tests": [{}]}, "code"),
        ({"code": "1"}, "tests"),
        ({"code": "1", "tests": []}, "tests"),
        ({"code": "1", "tests": [{"stdin": 1}]}, "tests.0.stdio.stdin"),
        ({"code": "1", "tests": [{}, {"expected": 1}]}, "tests.1.stdio.expected"),
        ({"code": "1", "tests": [{"function": "f", "stdin": ""}]}, "tests.0.call.stdin"),
        ({"code": "1", "tests": [{"function": "a b"}]}, "tests.0.call.function"),
        ({"code": "1", "tests": [{"function": "f", "arguments": {}}]}, "tests.0.call.arguments"),
        ({"code": "1", "tests": ["x"]}, "tests.0"),
        ({"code": "1", "tests": [{}], "comparison": "exact"}, "comparison"),
        ({"code": "1", "tests": [{}], "comparison": {"kind": "vague"}}, "comparison"),
        ({"code": "1", "tests": [{}], "comparison": {"kind": "float", "rel": -1}}, "comparison.float.rel"),
        ({"code": "1", "tests": [{}], "comparison": {"kind": "float", "abs": True}}, "comparison.float.abs"),
        ({"code": "1", "tests": [{}], "comparison": {"kind": "checker"}}, "comparison.checker.code"),
        ({"code": "1", "tests": [{}], "limits": {"output_kill_mb": 65}}, "limits.output_kill_mb"),
        ({"code": "1", "tests": [{}], "limits": {"wall_s": 3000}}, "limits.wall_s: 3000"),
        ({"code": "1", "tests": [{}], "language": "cobol"}, "language: 'cobol'"),
        ({"code": "1", "tests": [{}], "files": {"../x": ""}}, "files"),
        ({"code": "1", "tests": [{}], "surprise": 1}, "surprise"),
        ({"code": "1", "tests": [{}], "stop_at_first_failure": 1}, "stop_at_first_failure"),
        (
            {"code": "1", "language": "bash", "tests": [{}, {"function": "f"}]},
            "tests.1.function: only programs in python",
        ),
        (
            {"code": "1", "tests": [{}], "comparison": {"kind": "checker", "code": "", "language": "cobol"}},
            "comparison.language: 'cobol'",
        ),
        (
            {"code": "1", "tests": [{}], "comparison": {"kind": "checker", "code": "", "limits": {"wall_s": 3000}}},
            "comparison.limits.wall_s: 3000",
        ),
    ],
)
async def test_bad_input_names_the_field(server: ServerProcess, body: Any, field: str) -> None:
    async with aiohttp.ClientSession(server.url) as http, http.post("/v1/judge", json=body) as response:
        answer = await response.json()
        assert (response.status, answer["kind"]) == (422, "arguments")
        assert field in answer["detail"]


async def test_files_that_do_not_fit_are_an_error_line(judge: Judged, server: ServerProcess) -> None:
    content = base64.b64encode(bytes(3 << 20)).decode()
    with pytest.raises(ToolError, match=r"files\.big: cannot be written: .*limits\.work_dir_mb"):
        await judge("print(1)", [{}, {}], files={"big": content}, work_dir_mb=1)


# --- the wire ---


async def test_lines_come_as_tests_end(sandbox: Sandbox) -> None:
    code = "import time\nn = float(input())\ntime.sleep(n)\nprint(n)"
    request = JudgeRequest.model_validate({"code": code, "tests": [{"stdin": "3"}, {"stdin": "0"}]})
    lines = [line async for line in sandbox.judge_lines(request)]
    assert lines[0].compiled is not None
    assert [line.test.index for line in lines[1:3] if line.test] == [1, 0]
    assert lines[3].summary is not None


async def test_the_lines_of_the_wire(server: ServerProcess) -> None:
    body = {"code": "print(1)", "tests": [{"expected_stdout": "1"}]}
    async with aiohttp.ClientSession(server.url) as http, http.post("/v1/judge", json=body) as response:
        assert (response.status, response.content_type) == (200, "application/x-ndjson")
        lines = [json.loads(line) for line in (await response.text()).splitlines()]
    assert [list(line) for line in lines] == [["compiled"], ["test"], ["summary"]]
    assert lines[2] == {"summary": {"verdict": "accepted", "passed": 1, "total": 1}}


async def test_a_repeated_key_is_answered_with_the_first_lines(sandbox: Sandbox) -> None:
    data = {"code": "import uuid; print(uuid.uuid4())", "tests": [{}] * 3, "idempotency_key": str(uuid.uuid4())}
    request = JudgeRequest.model_validate(data)
    first = await sandbox.judge(request)
    assert await sandbox.judge(request) == first
    together = request.model_copy(update={"idempotency_key": str(uuid.uuid4())})
    answers = await asyncio.gather(*(sandbox.judge(together) for _ in range(4)))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].tests[0].stdout != first.tests[0].stdout
    with pytest.raises(ToolError, match="idempotency_key"):
        await sandbox.judge(request.model_copy(update={"code": "print(2)"}))


async def test_a_disconnect_ends_everything() -> None:
    marker = f"marker-{uuid.uuid4()}"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(300)', '{marker}'])"
    with serving("--slots", "2") as server:
        async with Sandbox.connect(server.url) as sandbox:
            request = JudgeRequest.model_validate({"code": code, "tests": [{}] * 20, "limits": {"wall_s": 300}})
            asking = asyncio.create_task(sandbox.judge(request))
            await until(lambda: len(processes_with(marker)) == 2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: processes_with(marker) == [])
            again = JudgeRequest.model_validate({"code": "print(1)", "tests": [{"expected_stdout": "1"}]})
            assert (await sandbox.judge(again)).verdict == "accepted"
            while (await sandbox.info())["pool"]["running"]:
                pass


async def test_on_the_process_pool_too() -> None:
    with serving("--pool", "process", "--slots", "2") as server:
        async with Sandbox.connect(server.url) as sandbox:
            code = "def f(n): return n + 1\nif __name__ == '__main__': print(f(int(input())))"
            tests: list[Any] = [
                {"stdin": "1", "expected_stdout": "2"},
                {"function": "f", "arguments": [2], "expected": 3},
            ]
            data = {"code": code, "tests": [*tests, {"function": "f", "arguments": ["x"]}]}
            result = await sandbox.judge(JudgeRequest.model_validate(data))
            assert _verdicts(result) == ["accepted", "accepted", "runtime_error"]
            assert (await sandbox.judge(JudgeRequest.model_validate({**data, "code": "("}))).verdict == "compile_error"


# --- from other shapes ---


async def test_requests_from_in_outs(sandbox: Sandbox) -> None:
    stdio = JudgeRequest.from_in_outs(ADD, {"inputs": ["1 2\n", ["3 4"]], "outputs": ["3\n", ["7"]]})
    assert (await sandbox.judge(stdio)).passed == 2
    in_outs: dict[str, Any] = {
        "fn_name": "f",
        "inputs": ["3\n4", "[1]\n[2]\n", '"a"\n"b"', [3, 4], [[1], [2]], ["7", ""]],
        "outputs": ["7", "[1, 2]", "ab", [7], [[1, 2]], "7"],
    }
    asserts = {"assert_case": ["assert f(2) == 4", "assert f(2) == 5", "print('any')"]}
    asserted = await sandbox.judge(JudgeRequest.from_in_outs("def f(n): return 2 * n", asserts))
    assert _verdicts(asserted) == ["accepted", "runtime_error", "accepted"]
    calls = JudgeRequest.from_in_outs("class Solution:\n    def f(self, a, b): return a + b", in_outs, client="c")
    result = await sandbox.judge(calls)
    assert (result.passed, calls.client) == (6, "c"), result


@pytest.mark.parametrize(
    ("in_outs", "said"),
    [
        ({}, "'inputs' and 'outputs'"),
        ({"inputs": ["1"], "outputs": []}, "equal length"),
        ({"inputs": "1", "outputs": ["1"]}, "must be lists"),
        ({"inputs": ["{"], "outputs": ["1"], "fn_name": "f"}, r"inputs\.0: not one JSON value per line"),
        ({"inputs": [1], "outputs": ["1"], "fn_name": "f"}, r"inputs\.0: must be a text or a list, not int"),
    ],
)
def test_in_outs_of_another_shape(in_outs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JudgeRequest.from_in_outs("1", in_outs)


def test_requests_without_tests_are_refused() -> None:
    with pytest.raises(ValidationError, match="tests"):
        JudgeRequest.from_in_outs("1", {"inputs": [], "outputs": []})
