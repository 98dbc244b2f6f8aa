"""CallRecord: the one record of a tool call. Metrics, rewards and views all read it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .errors import INFRA_KINDS, ErrorKind


class CallRecord(BaseModel):
    """Everything that is known of one tool call.

    Attributes:
        turn: index of the assistant turn that made the call, from 0.
        index: position of the call within its turn, from 0.
        arguments: as executed; None when the text could not be read as a call.
        error_kind: None for a call that worked.
        error: the message for a failed call.
        coerced: arguments that were read as another JSON type, one sentence each.
        repaired: the parser had to repair the model's text.
        executed: the tool really ran (False for parse errors, unknown tools, refused arguments, excess calls).
        retries: attempts after the first.
        queue_ms: time spent waiting for a free slot; `run_ms`: time the tool itself took.
        output_chars: characters of the tool's text before truncation; `shown_chars`: after it. `shown_tokens`: where
            the output is limited by tokens.
        images: those of the answer that the model saw. images_left_out: those that it was only told of.
        tool_reward: what `execute` returned as the step reward.
        token_span: [start, end) in `response_ids` of the context that holds the answer; None until it is appended.
        metrics: what `execute` returned as its metrics dictionary.
    """

    model_config = ConfigDict(extra="forbid")

    trajectory_id: str
    turn: int = Field(ge=0)
    index: int = Field(ge=0)
    tool: str
    arguments: dict[str, Any] | None = None
    error_kind: ErrorKind | None = None
    error: str | None = None
    coerced: list[str] = Field(default_factory=list)
    repaired: bool = False
    cached: bool = False
    executed: bool = False
    retries: int = 0
    queue_ms: float = 0.0
    run_ms: float = 0.0
    output_chars: int = 0
    shown_chars: int = 0
    shown_tokens: int | None = None
    truncated: bool = False
    images: int = 0
    images_left_out: int = 0
    tool_reward: float = 0.0
    token_span: tuple[int, int] | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_infra(self) -> bool:
        """Whether the call failed through our fault and not the model's."""
        return self.error_kind in INFRA_KINDS
