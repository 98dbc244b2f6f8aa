"""What is known of a trajectory while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ..schemas.call_record import CallRecord
from ..schemas.errors import ErrorKind
from ..schemas.trajectory import Sample, StopReason, Timing, Trajectory, TrajectoryImage
from .conversation import Conversation
from .parsers import ParsedTurn


@dataclass(slots=True)
class TrajectoryProgress:
    """Attributes:
    texts: the model's turns as text. messages: the conversation in chat form.
    """

    trajectory_id: str
    sample: Sample
    prompt_ids: list[int]
    seed: int | None = None
    token_exact: bool = True
    conversation: Conversation = field(init=False)
    messages: list[dict[str, Any]] = field(init=False)
    texts: list[str] = field(default_factory=list)
    records: list[CallRecord] = field(default_factory=list)
    tool_rewards: dict[str, float] = field(default_factory=dict)
    draft_calls: int = 0
    error: str | None = None
    timing: Timing = field(default_factory=Timing)
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.prompt_ids)
        self.messages = [dict(message) for message in self.sample.messages]

    def end_turn(self, parsed: ParsedTurn) -> None:
        """Record a generated turn as a chat message."""
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content}
        if parsed.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in parsed.calls
            ]
        self.messages.append(message)
        self.draft_calls += parsed.draft_calls

    def unrun(self, turn: int, index: int, tool: str, kind: ErrorKind, error: str) -> CallRecord:
        """The record of a call that was answered without running a tool."""
        return CallRecord(
            trajectory_id=self.trajectory_id,
            turn=turn,
            index=index,
            tool=tool,
            error_kind=kind,
            error=error,
            output_chars=len(error),
            shown_chars=len(error),
        )

    def add_tool_time(self, wall_s: float, records: list[CallRecord]) -> None:
        """Split the time of a turn's calls, which ran side by side, into queueing and running.

        The call that queued longest stands for the turn, so that the parts never exceed the wall clock.
        """
        queue_s = min(wall_s, max((record.queue_ms for record in records), default=0.0) / 1e3)
        self.timing.queue_s += queue_s
        self.timing.run_s += wall_s - queue_s

    def finish(self, stop_reason: StopReason) -> Trajectory:
        self.timing.total_s = time.perf_counter() - self.started
        infra_failed = stop_reason in (StopReason.INFRA, StopReason.DEADLINE) or any(
            record.is_infra for record in self.records
        )
        return Trajectory(
            trajectory_id=self.trajectory_id,
            sample=self.sample,
            messages=self.messages,
            prompt_ids=self.prompt_ids,
            response_ids=self.conversation.response_ids,
            response_mask=self.conversation.response_mask,
            response_logprobs=self.conversation.response_logprobs,
            spans=self.conversation.spans,
            images=[TrajectoryImage.of(shown.image, shown.file, block) for shown, block in self.conversation.pictures],
            assistant_texts=self.texts,
            records=self.records,
            tool_rewards=self.tool_rewards,
            stop_reason=stop_reason,
            draft_calls=self.draft_calls,
            token_exact=self.token_exact,
            infra_failed=infra_failed,
            error=self.error,
            timing=self.timing,
        )
