"""Trajectories made of spans and calls, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollbox.schemas.call_record import CallRecord
from rollbox.schemas.trajectory import Sample, Span, StopReason, Trajectory


def sample(ground_truth: str | None = "5", data_source: str = "openai/gsm8k", **extra_info: Any) -> Sample:
    return Sample(
        sample_id="s",
        data_source=data_source,
        messages=[{"role": "user", "content": "How many?"}],
        ground_truth=ground_truth,
        extra_info=extra_info,
    )


def call(turn: int, tool: str = "python", reward: float = 0.0, **fields: Any) -> CallRecord:
    fields = {"executed": True, **fields}
    return CallRecord(trajectory_id="t", turn=turn, index=0, tool=tool, tool_reward=reward, **fields)


def trajectory(
    answer: str = "#### 5",
    turns: Sequence[tuple[int, int]] = ((3, 2), (4, 0)),
    records: Sequence[CallRecord] = (),
    tool_rewards: dict[str, float] | None = None,
    of: Sample | None = None,
    **fields: Any,
) -> Trajectory:
    """Args: turns: (generated tokens, context tokens after them) of each."""
    spans: list[Span] = []
    mask: list[int] = []
    for number, (generated, context) in enumerate(turns):
        for kind, length in (("assistant", generated), ("context", context)):
            if kind == "assistant" or length:
                spans.append(Span(kind=kind, turn=number, start=len(mask), end=len(mask) + length))
                mask += [int(kind == "assistant")] * length
    question = of or sample()
    fields = {"stop_reason": StopReason.ANSWERED, **fields}
    return Trajectory(
        trajectory_id="t",
        sample=question,
        messages=[*question.messages, {"role": "assistant", "content": answer}],
        prompt_ids=[1, 2],
        response_ids=list(range(len(mask))),
        response_mask=mask,
        response_logprobs=[0.0] * len(mask),
        spans=spans,
        assistant_texts=["calls a tool"] * (len(turns) - 1) + [answer],
        records=list(records),
        tool_rewards=tool_rewards or {},
        **fields,
    )
