"""What is kept of a trajectory while it isn't shown: one small row, its calls by kind, and its text to search in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from ..schemas.message import content_text
from ..schemas.trajectory import Trajectory
from ..schemas.validation import describe
from .growing_file import MAX_LINE_BYTES, Line

Outcome = Literal["right", "wrong", "unscored", "infra", "unreadable"]
CallCount = tuple[str, str, int]
"""Tool, error kind ("" for a call that worked), number of calls."""

_SNIPPET_CHARS = 240
# More lines than a file of trajectories can have, and within what SQLite can count.
_LINES = 1 << 40
_PROBLEM_CHARS = 400


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list.

    Attributes:
        id: the line's number, and more for a line of a further file; see `row_id`.
        file: which file of the run: 0 the trajectories, 1 those that failed. offset, length: bytes of the line.
        problem: why the line cannot be read as a `Trajectory`; the fields after it are then empty.
        reward: the total; None when it was not scored. errors: calls that failed.
        generated, context, prompt: tokens. total_s: seconds by the clock.
        question, answer: beginnings, or ends, of long texts.
    """

    id: int
    file: int
    offset: int
    length: int
    problem: str | None
    outcome: Outcome
    trajectory_id: str = ""
    sample_id: str = ""
    reward: float | None = None
    stop_reason: str = ""
    turns: int = 0
    calls: int = 0
    errors: int = 0
    generated: int = 0
    context: int = 0
    prompt: int = 0
    total_s: float = 0.0
    question: str = ""
    answer: str = ""

    @property
    def key(self) -> str:
        return row_key(self.id)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row, with what is filtered by."""

    row: Row
    calls: list[CallCount]
    text: str


def row_id(file: int, line: int) -> int:
    """Ids follow the files and in each its lines; an id doesn't change while its file grows."""
    return file * _LINES + line


def row_key(number: int) -> str:
    """An id as it is shown and stands in addresses: `17` is line 17, `f3` line 3 of those that failed."""
    file, line = divmod(number, _LINES)
    return "f" * file + str(line)


def read_trajectory(data: bytes) -> Trajectory | str:
    """Parse one line, or say in a sentence why it cannot be read."""
    try:
        return Trajectory.model_validate_json(data)
    except ValidationError as error:
        return clip(describe(error), _PROBLEM_CHARS)


def read_entry(line: Line, file: int = 0) -> Entry:
    """Reduce a line to its entry. A line that is no `Trajectory` of this version becomes an unreadable row."""
    if line.data is None:
        return _unreadable(line, file, f"the line has {line.length:,} bytes; at most {MAX_LINE_BYTES:,} are read")
    read = read_trajectory(line.data)
    if isinstance(read, str):
        return _unreadable(line, file, read)
    generated = sum(read.response_mask)
    row = Row(
        id=row_id(file, line.number),
        file=file,
        offset=line.offset,
        length=line.length,
        problem=None,
        outcome=outcome_of(read),
        trajectory_id=read.trajectory_id,
        sample_id=read.sample.sample_id,
        reward=read.rewards.total if read.rewards is not None else None,
        stop_reason=read.stop_reason.value,
        turns=read.num_turns,
        calls=len(read.records),
        errors=sum(record.error_kind is not None for record in read.records),
        generated=generated,
        context=len(read.response_mask) - generated,
        prompt=len(read.prompt_ids),
        total_s=read.timing.total_s,
        question=clip(question_of(read), _SNIPPET_CHARS),
        answer=clip_start(answer_of(read), _SNIPPET_CHARS),
    )
    kinds = Counter((record.tool, record.error_kind.value if record.error_kind else "") for record in read.records)
    return Entry(row, [(tool, kind, count) for (tool, kind), count in kinds.items()], _searched_text(read))


def outcome_of(trajectory: Trajectory) -> Outcome:
    """A fault of ours first: what such a trajectory says does not count."""
    if trajectory.infra_failed:
        return "infra"
    if trajectory.rewards is None or trajectory.rewards.correct is None:
        return "unscored"
    return "right" if trajectory.rewards.correct else "wrong"


def question_of(trajectory: Trajectory) -> str:
    """The last thing that the user says in the prompt: worked examples may come before it."""
    asked = [message for message in trajectory.sample.messages if message.get("role") == "user"]
    return content_text((asked or trajectory.sample.messages)[-1].get("content"))


def answer_of(trajectory: Trajectory) -> str:
    """The model's last turn; empty when the trajectory ended on tool output."""
    last = trajectory.messages[-1] if trajectory.messages else {}
    return content_text(last.get("content")) if last.get("role") == "assistant" else ""


def clip(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[:chars] + "…"


def clip_start(text: str, chars: int) -> str:
    return text if len(text) <= chars else "…" + text[-chars:]


def searched(text: str) -> str:
    """Text as it is compared: without case. SQLite ends a text at a NUL, so there are none."""
    return text.replace("\0", " ").casefold()


def _searched_text(trajectory: Trajectory) -> str:
    texts = [trajectory.trajectory_id, trajectory.sample.sample_id, trajectory.error or ""]
    texts += [content_text(message.get("content")) for message in trajectory.messages]
    texts += trajectory.assistant_texts
    texts += [record.error or "" for record in trajectory.records]
    return searched("\n".join(texts))


def _unreadable(line: Line, file: int, problem: str) -> Entry:
    return Entry(Row(row_id(file, line.number), file, line.offset, line.length, problem, "unreadable"), [], "")
