"""Questions: deterministic, disjoint between splits, and with solutions that are right."""

from __future__ import annotations

import contextlib
import io
import re
from fractions import Fraction
from typing import Any

import pytest

from rollbox.demo.problems import split_of
from rollbox.demo.questions import KINDS, generate, lessons, tool_list
from rollbox.demo.wordings import CODE, ITEMS, NAMES, ONE_STEP, PLAIN, TWO_STEP
from rollbox.schemas.tool import ToolSchema


def _run_tool(call: dict[str, Any]) -> str:
    """What the real tools say, recomputed apart from the generator: these expressions and programs are our own."""
    arguments = call["function"]["arguments"]
    if call["function"]["name"] == "calculator":
        numbers = "".join(f"Fraction({part})" if part.isdigit() else part for part in _parts(arguments["expression"]))
        return str(eval(numbers, {"Fraction": Fraction}))
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(arguments["code"], {})
    return stdout.getvalue().strip()


def _parts(expression: str) -> list[str]:
    return expression.replace("(", " ( ").replace(")", " ) ").split()


def test_same_seed_gives_same_questions() -> None:
    assert generate("train", 50, seed=3) == generate("train", 50, seed=3)
    assert generate("train", 50, seed=3) != generate("train", 50, seed=4)


def test_questions_of_one_call_differ() -> None:
    samples = generate("heldout", 400, seed=1)
    assert len({sample.messages[0]["content"] for sample in samples}) == 400
    assert len({sample.sample_id for sample in samples}) == 400


def test_samples_have_one_user_message_and_all_kinds() -> None:
    samples = generate("heldout", 40, seed=1)
    assert [message["role"] for sample in samples for message in sample.messages] == ["user"] * 40
    assert {sample.extra_info["kind"] for sample in samples} == set(KINDS)
    assert {sample.data_source for sample in samples} == {"rollbox/arithmetic"}


def test_number_combinations_are_in_one_split_only() -> None:
    train, heldout = (
        {tuple(sorted(sample.extra_info["operands"])) for sample in generate(split, 3000, seed=2)}
        for split in ("train", "heldout")
    )
    assert train.isdisjoint(heldout)
    assert {split_of(operands) for operands in train} == {"train"}


def test_names_and_items_are_in_one_split_only() -> None:
    assert set(NAMES["train"]).isdisjoint(NAMES["heldout"])
    assert set(ITEMS["train"]).isdisjoint(ITEMS["heldout"])
    asked = " ".join(sample.messages[0]["content"] for sample in generate("heldout", 800, seed=2)).split()
    assert set(asked).isdisjoint({*NAMES["train"], *ITEMS["train"]})


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_tool_outputs_and_answers_are_right(split: Any) -> None:
    for lesson in lessons(split, 1200, seed=5):
        calls = [call for message in lesson.messages for call in message.get("tool_calls", [])]
        outputs = [message["content"] for message in lesson.messages if message["role"] == "tool"]
        assert [_run_tool(call) for call in calls] == outputs
        assert lesson.sample.ground_truth == outputs[-1]
        assert lesson.messages[-1] == {"role": "assistant", "content": f"#### {outputs[-1]}"}
        assert int(outputs[-1]) >= 0


def test_second_call_uses_the_first_result() -> None:
    for lesson in lessons("train", 50, seed=5, kinds=("two_step",)):
        first_output = lesson.messages[2]["content"]
        second_call = lesson.messages[3]["tool_calls"][0]["function"]["arguments"]["expression"]
        assert second_call.split()[0] == first_output


def test_numbers_stand_in_the_order_of_use() -> None:
    for sample in generate("heldout", 800, seed=1):
        numbers = [int(number) for number in re.findall(r"\d+", sample.messages[0]["content"])]
        assert numbers == sample.extra_info["operands"]


@pytest.mark.parametrize("wordings", [PLAIN, ONE_STEP, TWO_STEP, CODE])
def test_wordings_of_a_kind_differ(wordings: tuple[Any, ...]) -> None:
    assert len(set(wordings)) == len(wordings)


def test_tools_are_valid_schemas() -> None:
    assert [ToolSchema.model_validate(tool).function.name for tool in tool_list()] == ["calculator", "python"]
