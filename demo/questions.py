"""The demo's questions, and the ideal conversations the demo model is taught on. The same seed gives the same ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, get_args

from ..schemas.trajectory import Sample
from .problems import Kind, Problem, Step, draw_problem
from .wordings import Split

DATA_SOURCE = "rollbox/arithmetic"
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Lesson:
    """A question with its ideal conversation.

    Attributes:
        sample: what a rollout is given.
        messages: user, assistant with `tool_calls`, tool, …, assistant, in OpenAI chat form (arguments as objects).
    """

    sample: Sample
    messages: list[dict[str, Any]]


def guess_of(lesson: Lesson, rng: random.Random) -> Lesson:
    """The same question, answered at once with a random number of as many digits as the right one."""
    digits = len(str(lesson.sample.ground_truth).lstrip("-"))
    guess = rng.randint(10 ** (digits - 1), 10**digits - 1)
    return Lesson(lesson.sample, [lesson.messages[0], {"role": "assistant", "content": f"#### {guess}"}])


def tool_list() -> list[dict[str, Any]]:
    """The tools of the demo, as `apply_chat_template(tools=...)` expects them; the template shows names only."""
    return [_tool("calculator", "expression"), _tool("python", "code")]


def generate(split: Split, n: int, seed: int) -> list[Sample]:
    """`n` different questions, the kinds in turn; `extra_info` holds `kind` and `operands`."""
    return [lesson.sample for lesson in lessons(split, n, seed)]


def lessons(split: Split, n: int, seed: int, *, kinds: tuple[Kind, ...] = KINDS) -> list[Lesson]:
    """`n` different questions with their ideal conversations, the `kinds` in turn."""
    rng = random.Random(f"{split}/{seed}")
    made: list[Lesson] = []
    seen: set[str] = set()
    while len(made) < n:
        problem = draw_problem(rng, split, kinds[len(made) % len(kinds)])
        if problem.text not in seen:
            seen.add(problem.text)
            made.append(_lesson(problem, f"arithmetic-{split}-{seed}-{len(made)}"))
    return made


def _tool(name: str, parameter: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def _lesson(problem: Problem, sample_id: str) -> Lesson:
    user = {"role": "user", "content": problem.text}
    sample = Sample(
        sample_id=sample_id,
        data_source=DATA_SOURCE,
        messages=[user],
        ground_truth=problem.answer,
        extra_info={"kind": problem.kind, "operands": list(problem.operands)},
    )
    called = [message for index, step in enumerate(problem.steps) for message in _exchange(step, f"call_{index}")]
    return Lesson(sample, [user, *called, {"role": "assistant", "content": f"#### {problem.answer}"}])


def _exchange(step: Step, call_id: str) -> list[dict[str, Any]]:
    call = {"id": call_id, "type": "function", "function": {"name": step.tool, "arguments": step.arguments}}
    content = f"<think>{step.thought}</think>" if step.thought else ""
    return [
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "name": step.tool, "content": step.output},
    ]
