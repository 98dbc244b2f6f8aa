"""Programs that are judged by their tests, in the layouts of four data sets.

CodeContests (Li et al., 2022), APPS (Hendrycks et al., 2021), TACO (Li et al., 2023), and Eurus-2-RL-Data (Cui et al.,
2025), which is in verl's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...rewards.code_tests import in_outs
from ...schemas.errors import ConfigError
from .question import DataSet, LeftOutError, Question, name_of, text_of, verl_truth

SOURCES = ("codecontests", "apps", "codeforces", "taco")
INSTRUCTION = (
    "Write a Python program that solves the problem. Try it with the tool before you answer. End with the whole "
    "program in one ```python block."
)
_COLUMNS = ("prompt", "reward_model", "data_source")
_CODE_CONTESTS = ("name", "description", "public_tests", "private_tests", "generated_tests", "input_file")
_APPS = ("problem_id", "question", "input_output", "starter_code")
_STDIN = "\n\nThe program reads standard input and writes standard output."


def programs(max_tests: int | None) -> DataSet:
    """
    Args:
        max_tests: of each problem, the first ones; those that its statement shows come first. None: all.
    """
    return DataSet(
        columns=frozenset({*_COLUMNS, *_CODE_CONTESTS, *_APPS}),
        instruction=INSTRUCTION,
        question=_reader(max_tests),
        rows_at_a_time=16,  # a problem of CodeContests can have megabytes of tests
    )


def _reader(max_tests: int | None) -> Callable[[Mapping[str, Any], str], Question]:
    def question(row: Mapping[str, Any], where: str) -> Question:
        read = _code_contests if row.get("description") is not None else _apps_or_taco
        found, tests = (_verls if verl_truth(row) is not None else read)(row, where)
        kept = {**tests, **{key: _first(tests.get(key), max_tests) for key in ("inputs", "outputs")}}
        if not kept["inputs"] and not kept["outputs"]:
            raise LeftOutError("without tests")
        truth = json.dumps(kept)
        try:
            in_outs(truth)
        except ConfigError as error:
            raise LeftOutError("with tests that cannot be read") from error
        return Question(found.text, found.data_source, truth, found.name)

    return question


def _first(tests: Any, count: int | None) -> Any:
    return tests[:count] if isinstance(tests, list) else tests


def _verls(row: Mapping[str, Any], where: str) -> tuple[Question, Mapping[str, Any]]:
    if (source := str(row.get("data_source"))) not in SOURCES:
        raise LeftOutError(f"not programs ({source})")
    return Question(text_of(row, where, "prompt"), source, None), _object(verl_truth(row))


def _code_contests(row: Mapping[str, Any], where: str) -> tuple[Question, Mapping[str, Any]]:
    text = text_of(row, where, "description")
    if row.get("input_file"):
        raise LeftOutError("that read a file")
    if "<image>" in text:
        raise LeftOutError("that show an image")
    kinds = [_kind(row, f"{kind}_tests", where) for kind in ("public", "private", "generated")]
    tests = {f"{end}s": [each for kind in kinds for each in kind.get(end) or []] for end in ("input", "output")}
    return Question(text + _STDIN, "codecontests", None, name_of(row, "name")), tests


def _kind(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    tests = row.get(name) or {}
    if not isinstance(tests, Mapping) or not all(isinstance(tests.get(end) or [], list) for end in ("input", "output")):
        raise ConfigError(f"{where}: {name}: must be an object of two lists, 'input' and 'output'")
    return tests


def _apps_or_taco(row: Mapping[str, Any], where: str) -> tuple[Question, Mapping[str, Any]]:
    text, tests = text_of(row, where, "question"), row.get("input_output")
    if not tests:
        raise LeftOutError("without tests")
    found = _object(tests)
    if function := found.get("fn_name"):
        text += f"\n\nThe program defines the function {function}, which is called."
    else:
        text += _STDIN
    start = row.get("starter_code") or ""
    if not isinstance(start, str):
        raise ConfigError(f"{where}: starter_code: must be a text (got {type(start).__name__})")
    if start.strip():
        text += f" It begins with:\n```python\n{start.strip()}\n```"
    source = "apps" if row.get("problem_id") is not None else "taco"
    return Question(text, source, None, name_of(row, "problem_id")), found


def _object(text: Any) -> Mapping[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError) as error:
        raise LeftOutError("with tests that cannot be read") from error
    if not isinstance(value, Mapping):
        raise LeftOutError("with tests that cannot be read")
    return value
