"""Trajectories made up to be looked at: ordinary ones in any number, and the odd cases that a page must bear."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rollbox.schemas.call_record import CallRecord
from rollbox.schemas.errors import ErrorKind
from rollbox.schemas.trajectory import Rewards, Sample, Span, StopReason, Timing, Trajectory

TOOLS = ("calculator", "python", "search")
GROUP = 8
"""Samples of one question."""


def trajectory(turns: list[tuple[str, list[tuple[CallRecord, str]]]], **fields: Any) -> Trajectory:
    """Build one from its turns: the text, and the calls with their outputs. `fields` replaces what is made up."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": fields.pop("question", "What is 6 * 7?")}]
    sample = Sample(
        sample_id=fields.pop("sample_id", "s0"),
        data_source="made/up",
        messages=list(messages),
        ground_truth=fields.pop("ground_truth", "42"),
    )
    ids: list[int] = []
    mask: list[int] = []
    spans: list[Span] = []

    def add(kind: Any, turn: int, text: str) -> None:
        start = len(ids)
        ids.extend(min(ord(char), 255) for char in text[:200])
        mask.extend([int(kind == "assistant")] * (len(ids) - start))
        spans.append(Span(kind=kind, turn=turn, start=start, end=len(ids)))

    for index, (text, calls) in enumerate(turns):
        message: dict[str, Any] = {"role": "assistant", "content": text}
        written = [record for record, _ in calls if record.arguments is not None]
        if written:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": record.tool, "arguments": record.arguments}}
                for record in written
            ]
        messages.append(message)
        add("assistant", index, text or " ")
        if calls:
            messages += [{"role": "tool", "content": output} for _, output in calls]
            add("context", index, "".join(output for _, output in calls) or " ")
            for record, _ in calls:
                record.token_span = (spans[-1].start, spans[-1].end)
    made: dict[str, Any] = {
        "trajectory_id": "t0",
        "sample": sample,
        "messages": messages,
        "prompt_ids": [ord("q")] * 30,
        "response_ids": ids,
        "response_mask": mask,
        "response_logprobs": [-0.05 * (i % 7) if bit else 0.0 for i, bit in enumerate(mask)],
        "spans": spans,
        "assistant_texts": [text for text, _ in turns],
        "records": [record for _, calls in turns for record, _ in calls],
        "stop_reason": StopReason.ANSWERED,
        "timing": Timing(generate_s=1.5, queue_s=0.02, run_s=0.3, total_s=1.9),
        "rewards": Rewards(total=1.0, parts={"correct": 1.0}, raw={"correct": 1.0}, correct=True),
    }
    return Trajectory(**{**made, **fields})


def call(turn: int = 0, index: int = 0, tool: str = "calculator", **fields: Any) -> CallRecord:
    made: dict[str, Any] = {"arguments": {"expression": "6 * 7"}, "executed": True, "run_ms": 0.4}
    return CallRecord(trajectory_id="t0", turn=turn, index=index, tool=tool, **{**made, **fields})


def ordinary(count: int, seed: int = 0) -> Iterator[Trajectory]:
    """`count` trajectories of `count / GROUP` questions, right and wrong, with tool errors and faults of ours."""
    rng = random.Random(seed)
    for number in range(count):
        turns: list[tuple[str, list[tuple[CallRecord, str]]]] = []
        infra = rng.random() < 0.01
        turns += [_calling_turn(rng, turn, infra and turn == 0) for turn in range(rng.randint(0, 3))]
        infra = infra and bool(turns)
        right = rng.random() < 0.6
        turns.append((f"So it is\n#### {42 if right else rng.randint(0, 41)}", []))
        rewards = Rewards(
            total=1.1 if right else 0.1,
            parts={"correct": float(right), "format": 0.1},
            raw={"correct": float(right), "format": 1.0},
            correct=right,
        )
        yield trajectory(
            turns,
            trajectory_id=f"{rng.getrandbits(128):032x}",
            sample_id=f"question-{number // GROUP}",
            question=f"Question {number // GROUP}: what is six times seven, said in {rng.choice('abc')} words?",
            stop_reason=StopReason.ANSWERED if rng.random() < 0.9 else StopReason.MAX_TURNS,
            rewards=None if infra else rewards,
            infra_failed=infra,
        )


def _calling_turn(rng: random.Random, turn: int, infra: bool) -> tuple[str, list[tuple[CallRecord, str]]]:
    kind = rng.choice([*[None] * 8, ErrorKind.USER_CODE, ErrorKind.TIMEOUT, ErrorKind.ARGUMENTS])
    kind = ErrorKind.INFRA if infra else kind
    error = None if kind is None else f"it failed: {kind.value}"
    record = call(turn, tool=rng.choice(TOOLS), error_kind=kind, error=error, output_chars=20, shown_chars=20)
    said = f"<think>Let me use a tool, step {rng.randint(0, 99)}, {'and think it over ' * 8}</think>"
    return said, [(record, error or "42")]


HOSTILE = (
    "<script>document.title='owned'</script>",
    "</div></pre><img src=x onerror=\"document.title='owned'\">",
    "\x1b[31mred\x1b[0m and \x00\x00\x00\x00 NULs",
    "safe \u202egnp.exe\u202c and \u2066isolated\u2069",
    "{{ 7 * 7 }} {% raw %}",
    "x" * 1_000_000,
    "\n" * 5_000,
    "שלום וברכה",
    "'\"&<>",
)


def odd() -> list[Trajectory]:
    """Cases that a run seldom writes and a page must show all the same."""
    found = [
        trajectory([(text, [(call(error="no: " + text, error_kind="user_code"), text)]), (text, [])], question=text)
        for text in HOSTILE
    ]
    names = [call(tool=HOSTILE[0], arguments={HOSTILE[1]: HOSTILE[0]}, coerced=[HOSTILE[0]], metrics={"m": HOSTILE[1]})]
    found += [
        trajectory([("hm", [(record, "out") for record in names])], sample_id=HOSTILE[0], trajectory_id=HOSTILE[1]),
        trajectory([], stop_reason="infra", infra_failed=True, rewards=None, error=HOSTILE[0]),
        trajectory([("a", [(call(tool="", arguments=None, error_kind="parse", executed=False), "cannot be read")])]),
        trajectory([("a", [(call(arguments={}, retries=2, repaired=True, cached=True, truncated=True), "")])]),
        trajectory([("", [])], rewards=None, ground_truth=None),
        trajectory([("nan", [])], timing=Timing(total_s=-1.0, run_s=1e300)),
        trajectory([("pictures", [])], messages=[{"role": "user", "content": [{"type": "image"}, {"text": "see"}]}]),
        trajectory(
            [("odd roles", [])], messages=[{"role": 5}, {"content": None, "tool_calls": ["x", {"function": 3}]}]
        ),
        trajectory([("no messages", [])], messages=[]),
        trajectory([("big id", [])], prompt_ids=[2**70, -5]),
    ]
    return found


UNREADABLE = (
    b'{"trajectory_id": "old", "samples": []}',
    b"not json",
    b"[1, 2]",
    b"null",
    b"\xff\xfe\x00",
    b'{"a":' * 5000,
    b'{"trajectory_id": "' + b"\\u0000" * 10,
)


def as_line(made: Trajectory, **added: Any) -> bytes:
    """As a run writes it; `added` fields make it one of a newer schema."""
    text = made.model_dump_json()
    return (text if not added else made.model_copy(update=added).model_dump_json()).encode() + b"\n"
