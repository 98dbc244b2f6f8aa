"""Programs scored by tests (codecontests, APPS, TACO, codeforces), run by the sandbox's judge."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..schemas.errors import ConfigError, InfraError, ToolError
from ..schemas.judge import JudgeRequest, Verdict
from . import registry
from .answers import without_thinking
from .sandbox_access import scoring_sandbox
from .score import Score

_FENCED = re.compile(r"```([\w+#.-]*)[^`\n]*\n(.*?)```", re.DOTALL)
_LANGUAGES = {"": "python", "py": "python", "python3": "python", "c++": "cpp", "js": "javascript", "sh": "bash"}

_PROGRAMS = frozenset({"python", "cpp", "c", "java", "javascript", "go", "rust"})


def program_in(solution_str: str) -> tuple[str, str] | None:
    """(code, language) of the last fenced block in a language that solutions are written in, outside thinking.

    Models show input and output in blocks of their own behind the program. Without such a block the last one without a
    label counts, as Python, or else the last of all; None when there is none.
    """
    found = _FENCED.findall(without_thinking(solution_str))
    if not found:
        return None
    blocks = [(label, code, _LANGUAGES.get(label.lower(), label.lower())) for label, code in found]
    programs = [block for block in blocks if block[0] and block[2] in _PROGRAMS]
    bare = [block for block in blocks if not block[0]]
    _, code, language = (programs or bare or blocks)[-1]
    return code, language


def in_outs(ground_truth: str) -> dict[str, Any]:
    """The tests: JSON `{"inputs": […], "outputs": […], "fn_name"?}`.

    Raises:
        ConfigError: it is not of this shape.
    """
    try:
        tests = json.loads(ground_truth)
        if not isinstance(tests, dict):
            raise ValueError(f"must be an object, not {type(tests).__name__}")
        JudgeRequest.from_in_outs("", tests)
    except (ValueError, RecursionError) as error:
        shown = " ".join(str(error).split())
        raise ConfigError(f"ground_truth: not tests of a program: {shown[:200]}") from error
    return tests


# Codeforces 4A, "Watermelon".
_TESTS = json.dumps({"inputs": ["8\n", "3\n", "2\n"], "outputs": ["YES\n", "NO\n", "NO\n"]})
_RIGHT = "```python\nw = int(input())\nprint('YES' if w > 2 and w % 2 == 0 else 'NO')\n```"
_GUESS = "```python\nprint('NO')\n```"
_BROKEN = "```python\nprint('YES'\n```"


@registry.score(
    "codecontests",
    "apps",
    "codeforces",
    "taco",
    "rollbox/code",
    check=in_outs,
    fixtures=(
        registry.Fixture(_RIGHT, _TESTS, 1.0),
        registry.Fixture(_GUESS, _TESTS, 0.0),
        registry.Fixture(_BROKEN, _TESTS, 0.0),
    ),
)
async def score(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """1.0 when the program passes all its tests, else 0.0. The share that it passes is logged as `passed`.

    Raises:
        ConfigError: the ground truth holds no tests, or no sandbox is open.
        InfraError: the sandbox or a checker failed; that says nothing of the program.
    """
    passed, accepted = await _judged(solution_str, ground_truth)
    return Score(float(accepted), logged={"passed": passed})


@registry.score(
    "rollbox/code_share",
    check=in_outs,
    fixtures=(
        registry.Fixture(_RIGHT, _TESTS, 1.0),
        registry.Fixture(_GUESS, _TESTS, 2 / 3),
        registry.Fixture(_BROKEN, _TESTS, 0.0),
    ),
)
async def share(solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """The share of the tests that the program passes. A program that prints one guess earns something here.

    Raises: as `score`.
    """
    passed, accepted = await _judged(solution_str, ground_truth)
    return Score(passed, correct=accepted)


async def _judged(solution_str: str, ground_truth: str) -> tuple[float, bool]:
    tests, found = in_outs(ground_truth), program_in(solution_str)
    if found is None:
        return 0.0, False
    code, language = found
    sandbox = await scoring_sandbox()
    try:
        request = JudgeRequest.from_in_outs(code, tests, language=language)
        result = await sandbox.judge(request)
    except (ToolError, ValueError):
        return 0.0, False  # the program is too large, or in a language that there is not
    if result.verdict in (Verdict.INFRA, Verdict.CHECKER_ERROR):
        raise InfraError(f"judging failed: {result.verdict.value}")
    return result.passed / result.total, result.verdict is Verdict.ACCEPTED
