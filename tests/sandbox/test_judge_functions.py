"""The judge: functions that are called, and checker programs."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rollbox.schemas.errors import ToolError
from rollbox.schemas.judge import JudgeResult

from .conftest import Judged
from .test_languages import present

ADD = "a, b = map(int, input().split())\nprint(a + b)"
EXACT = {"kind": "exact"}


def _verdicts(result: JudgeResult) -> list[str]:
    return [test.verdict.value for test in result.tests]


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
