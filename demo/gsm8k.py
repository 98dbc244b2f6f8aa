"""GSM8K for a model that was never taught our tools: instructions and a few worked examples in the prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..rollout.data import load_samples
from ..schemas.trajectory import Sample

SAMPLE_FILE = Path(__file__).parent / "data" / "gsm8k_sample.jsonl"
"""The first 40 test questions, under their MIT licence (`gsm8k_LICENSE` beside the file)."""

_INSTRUCTIONS = """You solve word problems with a calculator. First write a tool call, exactly so:
Let's calculate.
<tool_call>
{"name": "calculator", "arguments": {"expression": "3 * (4 + 5)"}}
</tool_call>
The result comes in the next message. Call again if you need to, then end with a line: #### <number>"""


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
        [("7 * 12 - 15", "69")],
        "Mia has 69 pencils left.\n#### 69",
    )
    messages += _example(
        "A train rides 3 hours at 80 km per hour, then 2 hours at 95 km per hour. How far does it ride in all?",
        [("3 * 80", "240"), ("240 + 2 * 95", "430")],
        "It rides 430 km in all.\n#### 430",
    )
    messages += _example(
        "Ben has $50. He buys 3 shirts at $9 each and spends half of the rest on a book. How much has he left?",
        [("(50 - 3 * 9) / 2", "11.5")],
        "Ben has $11.50 left.\n#### 11.5",
    )
    return messages


def _example(question: str, steps: list[tuple[str, str]], answer: str) -> list[dict[str, Any]]:
    """A conversation that computes each (expression, result) and then answers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for expression, result in steps:
        call = {"name": "calculator", "arguments": {"expression": expression}}
        call_text = {"role": "assistant", "content": "Let's calculate."}
        messages.append(call_text | {"tool_calls": [{"type": "function", "function": call}]})
        messages.append({"role": "tool", "content": result})
    return [*messages, {"role": "assistant", "content": answer}]
