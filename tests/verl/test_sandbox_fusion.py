"""verl's real `reward.sandbox_fusion` code against a real server: each kind of answer is classed as verl expects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from verl.utils.reward_score import default_compute_score
from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

from ..sandbox.server_process import serving

pytestmark = pytest.mark.verl

ADD = "a, b = map(int, input().split())\nprint(a + b)"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--slots", "4") as server:
        yield f"{server.url}/run_code"


def check(url: str, cases: dict[str, Any], code: str, timeout_s: int = 10) -> tuple[list[Any], list[str]]:
    results, metadata = check_correctness(url, cases, code, timeout=timeout_s)
    return results, [entry["status"] for entry in metadata]


def test_right_and_wrong_answers(url: str) -> None:
    cases = {"inputs": ["3 4\n", "10 -3\n", "1 1\n"], "outputs": ["7\n", "7\n", "3\n"]}
    assert check(url, cases, ADD) == ([True, True, False], ["success", "success", "wrong_answer"])


@pytest.mark.parametrize(
    ("code", "result", "status"),
    [
        ("raise ValueError('no')", -2, "runtime_error"),
        ("import sys; sys.exit(3)", -2, "runtime_error"),
        ("import os; os.kill(os.getpid(), 11)", -2, "runtime_error"),
        ("this is not python", -2, "runtime_error"),
        ("x = bytearray(10**11)", -2, "runtime_error"),
        ("while True: pass", -3, "timeout"),
        ("import time; time.sleep(60)", -3, "timeout"),
    ],
)
def test_programs_that_fail(url: str, code: str, result: int, status: str) -> None:
    timeout_s = 1 if status == "timeout" else 10
    assert check(url, {"inputs": ["1 2"], "outputs": ["3"]}, code, timeout_s) == ([result], [status])


@pytest.mark.parametrize(
    "code",
    ["def add(a, b):\n    return a + b", "class Solution:\n    def add(self, a, b):\n        return a + b"],
)
def test_function_call_tests(url: str, code: str) -> None:
    cases = {"fn_name": "add", "inputs": ["1\n2", "[1]\n[2, 3]"], "outputs": ["3", "[1, 2, 3]"]}
    assert check(url, cases, code) == ([True, True], ["success", "success"])


def test_large_output_is_a_wrong_answer_and_not_a_stall(url: str) -> None:
    assert check(url, {"inputs": [""], "outputs": ["x"]}, "print('x' * 3_000_000)") == ([False], ["wrong_answer"])


@pytest.mark.parametrize("data_source", ["codecontests", "apps", "taco"])
def test_the_reward_of_a_data_source(url: str, data_source: str) -> None:
    cases = json.dumps({"inputs": ["3 4", "2 2"], "outputs": ["7", "5"]})
    options = {"sandbox_fusion_url": url, "memory_limit_mb": 512}
    right = default_compute_score(data_source, f"```python\n{ADD}\n```", cases.replace('"5"', '"4"'), **options)
    half = default_compute_score(data_source, f"```python\n{ADD}\n```", cases, continuous=True, **options)
    broken = default_compute_score(data_source, "```python\nprint(\n```", cases, **options)
    scores = [value[0] if isinstance(value, tuple) else value for value in (right, half, broken)]
    assert scores[0] == 1.0
    assert 0.0 < scores[1] < 1.0
    assert scores[2] == 0.0
