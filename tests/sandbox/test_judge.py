"""The judge over HTTP and by our client: verdicts, order, comparisons, functions, checkers."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ToolError
from rollbox.schemas.judge import JudgeLimits, JudgeRequest, JudgeResult, Verdict

from .server_process import ServerProcess, processes_with, serving, until
from .test_languages import present

Judged = Callable[..., Any]
ADD = "a, b = map(int, input().split())\nprint(a + b)"
EXACT = {"kind": "exact"}


@pytest.fixture
def judge(sandbox: Sandbox) -> Judged:
    """Judge a program; keywords are limits or fields of the request."""

    async def judged(code: str, tests: list[dict[str, Any]], **fields: Any) -> JudgeResult:
        limits = {name: fields.pop(name) for name in list(fields) if name in JudgeLimits.model_fields}
        data = {"code": code, "tests": tests, "limits": {"wall_s": 20, **limits}, **fields}
        return await sandbox.judge(JudgeRequest.model_validate(data))

    return judged


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


# --- functions ---


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
        "'''doc'''\nfrom __future__ import annotations\ndef add(a, b): return a + b\nif __name__ == '__main__': 1 / 0",
        "import sys\nprint('printed')\ndef add(a, b):\n    print('more', file=sys.stdout)\n    return a + b",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    n: 'int'\ndef add(a, b): return P(a + b).n",
        "import numpy as np\ndef add(a, b): return np.asarray(a) + np.asarray(b)",
        "class Solution:\n    def add(self, a: List[int], b: Any):\n        return sum(deque([a, b])) if inf else 0",
        "def pow(a, b): return a + b\ndef add(a, b): return pow(a, b) + abs(-1) - sum([1])",
    ],
)
async def test_a_function_is_called(judge: Judged, code: str) -> None:
    tests = [
        {"function": "add", "arguments": [3, 4], "expected": 7},
        {"function": "add", "arguments": [3], "keyword_arguments": {"b": 0.5}, "expected": 3.5},
        {"function": "add", "arguments": [3, 4], "expected": 8},
    ]
    result = await judge(code, tests)
    assert _verdicts(result) == ["accepted", "accepted", "wrong_answer"], result
    assert result.tests[0].stdout == "7"


async def test_a_granted_name_is_not_the_programs_own(judge: Judged) -> None:
    tests = [{"function": "sqrt", "arguments": [4], "expected": 2}]
    for code in ("print(sqrt(4))", "import math\nprint(math.sqrt(4))"):
        result = await judge(code, tests)
        assert result.verdict == "runtime_error", code
    own = await judge("from math import sqrt as root\ndef sqrt(n): return root(n)", tests)
    assert own.verdict == "accepted"


@pytest.mark.parametrize(
    ("returned", "expected", "accepted"),
    [
        ("(1, (2, 3))", [1, [2, 3]], True),
        ("[1.0, True]", [1, 1], True),
        ("float('nan')", float("nan"), True),
        ("float('inf')", float("inf"), True),
        ("'7'", 7, False),
        ("7", "7", False),
        ("None", None, True),
        ("{1: 'a'}", {"1": "a"}, True),
        ("{3, 3}", [3], True),
        ("range(3)", [0, 1, 2], True),
        ("'é\\n\\x00'", "é\n\x00", True),
        ("2 ** 100", 2**100, True),
        ("'\\ud800'", "\ufffd", False),
    ],
)
async def test_values_cross_as_json(judge: Judged, returned: str, expected: Any, accepted: bool) -> None:
    result = await judge(f"def f(): return {returned}", [{"function": "f", "expected": expected}])
    assert _verdicts(result) == ["accepted" if accepted else "wrong_answer"], result


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def g(): f.x", "neither a function 'f' nor a class Solution"),
        ("class Solution:\n    def g(self): pass", "neither a function 'f' nor a class Solution"),
        ("def f(): return object()", "f returned what JSON cannot hold"),
        ("def f(): 1 / 0", 'main.py", line 1, in f\n'),
        ("def f():\n    x = []\n    x.append(x)\n    return x", "Circular reference"),
        ("def f(x): pass", "missing 1 required positional argument"),
        ("def f(): return input()", "EOFError"),
        ("import sys\ndef f(): sys.exit(3)", ""),
        ("import sys\ndef f(): sys.exit(0)", ""),
        ("1 / 0", 'main.py", line 1, in <module>\n'),
    ],
)
async def test_a_call_that_fails(judge: Judged, code: str, said: str) -> None:
    result = await judge(code, [{"function": "f"}])
    assert _verdicts(result) == ["runtime_error"]
    assert said in result.tests[0].stderr
    assert "<string>" not in result.tests[0].stderr


async def test_forged_values_of_a_call(judge: Judged) -> None:
    code = """
import os, sys
def f(how):
    if how == "print": print("42")
    elif how == "early":
        for fd in range(64):
            try: os.write(fd, b"42")
            except OSError: pass
        os._exit(0)
    elif how == "twice":
        for fd in range(3, 64):
            try: os.write(fd, b"42 ")
            except OSError: pass
    return 41
"""
    tests = [{"function": "f", "arguments": [how], "expected": 43} for how in ("print", "early", "twice")]
    # Whatever it writes there is its answer, as good as what it returns; but it must still know the right one.
    assert "accepted" not in _verdicts(await judge(code, tests))
    for test in tests:
        test["expected"] = 41
    assert _verdicts(await judge(code, tests)) == ["accepted", "wrong_answer", "runtime_error"]


async def test_the_tolerance_of_values_of_calls(judge: Judged) -> None:
    tests = [{"function": "f", "expected": [0.3]}]
    assert (await judge("def f(): return [0.1 + 0.2]", tests)).verdict == "wrong_answer"
    assert (await judge("def f(): return [0.1 + 0.2]", tests, comparison={"kind": "float"})).verdict == "accepted"


async def test_input_and_calls_in_one_request(judge: Judged) -> None:
    code = "def f(): return 1\nif __name__ == '__main__': print(input())"
    tests = [{"stdin": "x", "expected_stdout": "x"}, {"function": "f", "expected": 1}]
    assert (await judge(code, tests)).passed == 2


async def test_a_call_with_little_memory_or_a_shadowed_module(judge: Judged) -> None:
    tests = [{"function": "f", "expected": "own"}]
    files = {"string.py": base64.b64encode(b"word = 'own'").decode()}
    result = await judge("import string\ndef f(): return string.word", tests, files=files)
    assert (result.verdict, result.tests[0].stderr) == ("accepted", "")
    # Here the interpreter starts afresh.
    assert (await judge("def f(): return 'own'", tests, memory_mb=32)).verdict == "accepted"


# --- checkers ---

NEAR = """
import sys
given, said, told = (open(name).read() for name in sys.argv[1:])
assert given == "7\\n", given
print("compared", said.strip(), told, file=sys.stderr)
sys.exit(0 if abs(float(said) - float(told)) < 0.5 else 1)
"""


@pytest.mark.parametrize(
    ("checker", "verdict", "said"),
    [
        (NEAR, "accepted", "compared 7.25 7"),
        (NEAR.replace("0.5", "0.1"), "wrong_answer", "compared 7.25 7"),
        ("1 / 0", "checker_error", "ZeroDivisionError"),
        ("import sys; sys.exit(2)", "checker_error", "exit code 2"),
        ("import os; os.kill(os.getpid(), 9)", "checker_error", "signal 9"),
        ("while True: pass", "checker_error", "status timeout"),
        ("print('x' * (3 << 20))", "checker_error", "status output_limit"),
    ],
)
async def test_checkers(judge: Judged, checker: str, verdict: str, said: str) -> None:
    limits = {"wall_s": 1 if "while" in checker else 20, "output_kill_mb": 1}
    comparison = {"kind": "checker", "code": checker, "limits": limits}
    tests = [{"stdin": "7\n", "expected_stdout": "7"}]
    result = await judge("print(float(input()) + 0.25)", tests, comparison=comparison)
    assert (result.verdict, _verdicts(result)) == (verdict, [verdict])
    assert said in result.tests[0].message


async def test_a_checker_sees_calls_as_json(judge: Judged) -> None:
    checker = "import json, sys\nprint([json.load(open(name)) for name in sys.argv[1:]])"
    test = {"function": "f", "arguments": [1], "keyword_arguments": {"b": 2}, "expected": {"x": None}}
    result = await judge("def f(a, b): return (a, b)", [test], comparison={"kind": "checker", "code": checker})
    assert result.tests[0].message == "[[[1], {'b': 2}], [1, 2], {'x': None}]\n"


@pytest.mark.parametrize("language", present("cpp"))
async def test_a_compiled_checker(judge: Judged, language: str) -> None:
    code = """
#include <fstream>
#include <cstdlib>
int main(int argc, char **argv) {
    double said, told;
    std::ifstream(argv[2]) >> said;
    std::ifstream(argv[3]) >> told;
    return std::abs(said - told) < 0.5 ? 0 : 1;
}
"""
    tests = [{"expected_stdout": "7.2"}, {"expected_stdout": "8"}]
    result = await judge("print(7)", tests, comparison={"kind": "checker", "code": code, "language": language})
    assert _verdicts(result) == ["accepted", "wrong_answer"]
    broken = {"kind": "checker", "code": "int main() { undeclared(); }", "language": language}
    with pytest.raises(ToolError, match=r"(?s)comparison\.code: the checker does not compile: .*undeclared"):
        await judge("print(7)", tests, comparison=broken)


async def test_a_checker_is_not_asked_about_a_program_that_failed(judge: Judged) -> None:
    result = await judge("1 / 0", [{}], comparison={"kind": "checker", "code": ""})
    assert (result.verdict, result.tests[0].message) == ("runtime_error", "")


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
