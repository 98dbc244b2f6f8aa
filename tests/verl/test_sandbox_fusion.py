"""verl's own code reward, unchanged, against our server in SandboxFusion's place.

ROLLBOX_TEST_SANDBOX_URL names a server that runs already; without it one is started.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from verl.utils.reward_score import default_compute_score
from verl.utils.reward_score.sandbox_fusion import compute_score
from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.judge import JudgeRequest

from ..sandbox.server_process import serving

pytestmark = pytest.mark.verl

ADD = "a, b = map(int, input().split())\nprint(a + b)"
TESTS = {"inputs": ["3 4\n", "10 -2\n", "0 0\n"], "outputs": ["7\n", "8\n", "0\n"]}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    running = os.environ.get("ROLLBOX_TEST_SANDBOX_URL")
    if running:
        yield f"{running}/run_code"
        return
    with serving("--slots", "4") as server:
        yield f"{server.url}/run_code"


def _checked(url: str, code: str, tests: dict[str, Any], **options: Any) -> tuple[list[Any], list[str]]:
    results, metadata = check_correctness(url, tests, code, **options)
    return results, [case["status"] for case in metadata]


def test_correct_and_wrong_answers(url: str) -> None:
    assert _checked(url, ADD, TESTS) == ([True] * 3, ["success"] * 3)
    assert _checked(url, ADD.replace("a + b", "a - b"), TESTS) == (
        [False, False, True],
        ["wrong_answer", "wrong_answer", "success"],
    )


@pytest.mark.parametrize("code", ["1 / 0", "print(", "import sys; sys.exit(1)", "import surely_not_installed"])
def test_a_runtime_error(url: str, code: str) -> None:
    assert _checked(url, code, TESTS) == ([-2] * 3, ["runtime_error"] * 3)


def test_a_timeout(url: str) -> None:
    code = "n = int(input())\nwhile n: pass\nprint(n)"
    tests = {"inputs": ["1", "0"], "outputs": ["", "0"]}
    assert _checked(url, code, tests, timeout=1) == ([-3, True], ["timeout", "success"])


def test_a_memory_limit(url: str) -> None:
    code = "print(len(bytearray(400 << 20)))"
    tests = {"inputs": [""], "outputs": [str(400 << 20)]}
    assert _checked(url, code, tests, memory_limit_mb=256) == ([-2], ["runtime_error"])
    assert _checked(url, code, tests, memory_limit_mb=1024) == ([True], ["success"])


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
    ],
)
def test_function_call_tests(url: str, code: str) -> None:
    tests = {"fn_name": "add", "inputs": ["3\n4", "[1]\n[2]"], "outputs": ["7", "[1, 2]"]}
    assert _checked(url, code, tests) == ([True, True], ["success"] * 2)


CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_compiled_language(url: str) -> None:
    assert _checked(url, CPP, TESTS, language="cpp", timeout=30) == ([True] * 3, ["success"] * 3)
    crashing = CPP.replace("int a, b;", "int a, b; std::abort();")
    assert _checked(url, crashing, TESTS, language="cpp", timeout=30) == ([-2] * 3, ["runtime_error"] * 3)
    broken = CPP.replace("int a, b;", "int a;")
    assert _checked(url, broken, TESTS, language="cpp", timeout=30) == ([-4] * 3, ["compile_error"] * 3)


def test_the_names_that_its_wrapper_grants(url: str) -> None:
    code = "class Solution:\n    def first(self, values: List[int]) -> int:\n        return deque(values)[0]"
    tests = {"fn_name": "first", "inputs": ["[3, 4]"], "outputs": ["3"]}
    assert _checked(url, code, tests) == ([True], ["success"])


async def test_the_judge_agrees(url: str) -> None:
    """The same test cases by our client give the same verdicts."""
    call = {"fn_name": "f", "inputs": ["3\n4", "[1]\n[2]", "1\n1", '"a"\n"b"'], "outputs": ["7", "[1, 2]", "3", "ab"]}
    programs: list[tuple[str, dict[str, Any]]] = [
        (ADD, TESTS),
        (ADD.replace("a + b", "a - b"), TESTS),
        ("print(1 / int(input().split()[0]))", TESTS),
        ("def f(a: Any, b: Any) -> Any:\n    return a + b", call),
        ("class Solution:\n    def f(self, a, b):\n        return a + b", call),
    ]
    async with Sandbox.connect(url.removesuffix("/run_code")) as sandbox:
        for code, tests in programs:
            judged = await sandbox.judge(JudgeRequest.from_in_outs(code, tests))
            assert [test.verdict == "accepted" for test in judged.tests] == [
                result is True for result in _checked(url, code, tests)[0]
            ], code


def test_assert_cases(url: str) -> None:
    code = "def double(n):\n    return 2 * n"
    asserts = {"assert_case": ["assert double(2) == 4", "assert double(2) == 5"]}
    score, _ = compute_score(url, None, 1024, f"```python\n{code}\n```", asserts)
    assert score == 0.5


def test_many_cases_at_a_time(url: str) -> None:
    tests = {"inputs": [f"{n} {n}" for n in range(60)], "outputs": [str(2 * n) for n in range(60)]}
    results, _ = _checked(url, ADD, tests, concurrent_semaphore=threading.Semaphore(32))
    assert results == [True] * 60


def test_the_score_by_data_source(url: str) -> None:
    completion = f"Here it is:\n```python\n{ADD}\n```"
    score = default_compute_score("codecontests", completion, json.dumps(TESTS), sandbox_fusion_url=url)
    assert (score if isinstance(score, float) else score[0]) == 1.0


def test_large_output_is_a_wrong_answer_and_not_a_stall(url: str) -> None:
    assert _checked(url, "print('x' * 3_000_000)", {"inputs": [""], "outputs": ["x"]}) == ([False], ["wrong_answer"])


@pytest.mark.parametrize("data_source", ["codecontests", "apps", "taco"])
def test_a_partly_right_program_scores_between(url: str, data_source: str) -> None:
    tests = json.dumps({"inputs": ["3 4", "2 2"], "outputs": ["7", "5"]})
    completion = f"```python\n{ADD}\n```"
    score = default_compute_score(data_source, completion, tests, sandbox_fusion_url=url, continuous=True)
    assert 0.0 < (score if isinstance(score, float) else score[0]) < 1.0
