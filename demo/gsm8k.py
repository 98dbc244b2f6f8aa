"""GSM8K for a model that was never taught our tools: instructions and a few worked examples in the prompt."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..rollout.data import load_samples
from ..schemas.trajectory import Sample

SAMPLE_FILE = Path(__file__).parent / "data" / "gsm8k_sample.jsonl"
"""The first 40 test questions, under their MIT licence (`gsm8k_LICENSE` beside the file)."""

_INSTRUCTIONS = """You solve word problems step by step. Use the calculator for arithmetic, python for more.
To use a tool, write exactly:
<tool_call>
{"name": "calculator", "arguments": {"expression": "3 * (4 + 5)"}}
</tool_call>
and stop. The result comes in the next message. When you know the answer, end with a line: #### <number>"""


def few_shot_samples(path: Path, limit: int | None = None) -> list[Sample]:
    """GSM8K samples whose messages begin with the instructions and three worked examples.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong.
    """
    examples = few_shot_messages()
    return [
        sample.model_copy(update={"messages": [*examples, *sample.messages]})
        for sample in load_samples(path, data_source="openai/gsm8k", limit=limit)
    ]


def few_shot_messages() -> list[dict[str, Any]]:
    """The system message, and examples as complete conversations with calls and results."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _INSTRUCTIONS}]
    messages += _example(
        "A box holds 12 pencils. Mia buys 7 boxes and gives away 15 pencils. How many pencils does she have left?",
        [("She has 7 boxes of 12 pencils and gives away 15.", "calculator", {"expression": "7 * 12 - 15"}, "69")],
        "Mia has 69 pencils left.\n#### 69",
    )
    messages += _example(
        "A train rides 3 hours at 80 km per hour, then 2 hours at 95 km per hour. How far does it ride in all?",
        [
            ("First the way in the first 3 hours.", "calculator", {"expression": "3 * 80"}, "240"),
            ("Now the way in the next 2 hours, added to it.", "calculator", {"expression": "240 + 2 * 95"}, "430"),
        ],
        "It rides 430 km in all.\n#### 430",
    )
    messages += _example(
        "Tom saves $1 on the first day, and each day $2 more than the day before. How much has he after 10 days?",
        [
            (
                "He saves 1, 3, 5, ... for 10 days; I add them up.",
                "python",
                {"code": "print(sum(1 + 2 * day for day in range(10)))"},
                "100",
            )
        ],
        "Tom has $100 after 10 days.\n#### 100",
    )
    return messages


def _example(question: str, steps: Iterable[tuple[str, str, dict[str, str], str]], answer: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for thought, name, arguments, output in steps:
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})
        messages.append({"role": "tool", "content": output})
    return [*messages, {"role": "assistant", "content": answer}]
