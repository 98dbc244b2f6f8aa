"""Trajectories: the conversation, its exact tokens, masks and spans, the calls, and the rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from .call_record import CallRecord
from .surrogates import without_lone_surrogates

Decode = Callable[[Sequence[int]], str]


class StopReason(StrEnum):
    """Why a trajectory ended."""

    ANSWERED = "answered"
    MAX_TURNS = "max_turns"
    MAX_INVALID_CALLS = "max_invalid_calls"
    TURN_TRUNCATED = "turn_truncated"
    CONTEXT_FULL = "context_full"
    DEADLINE = "deadline"
    INFRA = "infra"


class Sample(BaseModel):
    """One question, as read from a data set.

    Attributes:
        messages: chat messages, `{"role", "content"}`.
        tools_kwargs: per tool name, `{"create_kwargs": {...}}`, in verl's layout.
        images: one for each image part of the messages, in their order: a path, a file's bytes, a data URI, or an image
            of Pillow. They are not written with the sample.
    """

    model_config = ConfigDict(extra="forbid")

    sample_id: str
    data_source: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    ground_truth: str | None = None
    extra_info: dict[str, Any] = Field(default_factory=dict)
    tools_kwargs: dict[str, Any] = Field(default_factory=dict)
    images: list[Any] = Field(default_factory=list, exclude=True, repr=False)


class Span(BaseModel):
    """A stretch of `response_ids`: `[start, end)`. Spans lie one after the other and cover all of it.

    `assistant` spans are generated (mask 1), `context` spans are tool output and template text (mask 0).
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["assistant", "context"]
    turn: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class TrajectoryImage(BaseModel):
    """An image that the model was shown.

    Attributes:
        file: `images/HASH.png` in the run's directory, named after the pixels.
        width, height: in pixels, before the model's processor scaled it.
        start, end: its tokens, [start, end) in `prompt_ids + response_ids`; None where no tokens are known.
    """

    model_config = ConfigDict(extra="forbid")

    file: str = Field(pattern=r"^images/[0-9a-f]{32}\.png$")
    width: int = Field(ge=1)
    height: int = Field(ge=1)
    start: int | None = Field(default=None, ge=0)
    end: int | None = Field(default=None, ge=0)
    _pixels: Any = PrivateAttr(default=None)

    @property
    def pixels(self) -> Any:
        """The image of Pillow, where the trajectory was rolled out in this process; else None."""
        return self._pixels

    @classmethod
    def of(cls, pixels: Any, file: str, block: tuple[int, int] | None) -> TrajectoryImage:
        """A record that keeps the image of Pillow beside it. `block`: [start, end)."""
        start, end = block or (None, None)
        image = cls(file=file, width=pixels.width, height=pixels.height, start=start, end=end)
        image._pixels = pixels
        return image


class Timing(BaseModel):
    """Seconds by the clock, summed over the trajectory; calls of one turn that ran side by side overlap."""

    model_config = ConfigDict(extra="forbid")

    generate_s: float = 0.0
    queue_s: float = 0.0
    run_s: float = 0.0
    total_s: float = 0.0


class Rewards(BaseModel):
    """The reward and what it is made of.

    Attributes:
        parts: name -> value after weighting; they sum to `total`.
        raw: name -> value before weighting, and what is only logged.
        correct: the outcome alone; None when it was not scored.
        placed: (position in `response_ids`, reward), on generated tokens only; they sum to `total`. Empty where nothing
            was generated.
    """

    model_config = ConfigDict(extra="forbid")

    total: float
    parts: dict[str, float] = Field(default_factory=dict)
    raw: dict[str, float] = Field(default_factory=dict)
    correct: bool | None = None
    placed: list[tuple[int, float]] = Field(default_factory=list)


class Trajectory(BaseModel):
    """One finished rollout.

    Attributes:
        messages: the conversation as text, the tool messages included. A message with images has a list of parts, where
            `{"type": "image", "image": FILE}` stands for one of `images`.
        prompt_ids: [P] ids. response_ids: [R] ids, generated and context alike, as sampled.
        response_mask: [R], 1 for a generated token, 0 for context. response_logprobs: [R], 0.0 where the mask is 0.
        token_exact: the ids and logprobs are those that were sampled. False for a chat server: the ids are those of its
            text in a local tokenizer, the logprobs are 0.0; not for training.
        images: those that the model was shown, in the order of the conversation.
        draft_calls: calls inside a closed `<think>`, which were not run.
        infra_failed: something failed through our fault: leave the sample out of loss and score.
    """

    model_config = ConfigDict(extra="forbid")

    trajectory_id: str
    sample: Sample
    messages: list[dict[str, Any]]
    prompt_ids: list[int]
    response_ids: list[int] = Field(default_factory=list)
    response_mask: list[int] = Field(default_factory=list)
    response_logprobs: list[float] = Field(default_factory=list)
    spans: list[Span] = Field(default_factory=list)
    images: list[TrajectoryImage] = Field(default_factory=list)
    assistant_texts: list[str] = Field(default_factory=list)
    records: list[CallRecord] = Field(default_factory=list)
    tool_rewards: dict[str, float] = Field(default_factory=dict)
    stop_reason: StopReason
    token_exact: bool = True
    draft_calls: int = 0
    infra_failed: bool = False
    error: str | None = None
    timing: Timing = Field(default_factory=Timing)
    rewards: Rewards | None = None
    _decode: Decode | None = PrivateAttr(default=None)

    def __eq__(self, other: object) -> bool:
        # By its fields: what decodes the ids is not written to files, and one that is read back is the same.
        return self.__dict__ == other.__dict__ if isinstance(other, Trajectory) else NotImplemented

    @property
    def decode(self) -> Decode | None:
        """Turns ids into the text of `assistant_texts`; known only where the trajectory was rolled out."""
        return self._decode

    def decoded_by(self, decode: Decode) -> Self:
        """Keep what decodes the ids; it is not written to files. Returns the trajectory."""
        self._decode = decode
        return self

    @property
    def num_turns(self) -> int:
        """Assistant turns."""
        return len(self.assistant_texts)

    @property
    def answer_text(self) -> str:
        """The model's last turn outside its tool calls; empty when it ended on tool output, or never spoke.

        This is what an outcome reward may read: never tool output, never a call's arguments. Half of a surrogate pair
        is U+FFFD: no server and no tokenizer would take it.
        """
        if len(self.messages) <= len(self.sample.messages):
            return ""  # the last message is the prompt's
        last = self.messages[-1]
        text = str(last.get("content") or "") if last["role"] == "assistant" else ""
        return str(without_lone_surrogates(text))

    @model_validator(mode="after")
    def _adds_up(self) -> Trajectory:
        n = len(self.response_ids)
        lengths = {"response_mask": len(self.response_mask), "response_logprobs": len(self.response_logprobs)}
        for name, length in lengths.items():
            if length != n:
                raise ValueError(f"{name} has {length} entries for {n} response_ids")
        position = 0
        for span in self.spans:
            if span.start != position or span.end < span.start:
                raise ValueError(f"span {span.kind} [{span.start}, {span.end}) does not follow position {position}")
            expected = 1 if span.kind == "assistant" else 0
            if any(bit != expected for bit in self.response_mask[span.start : span.end]):
                raise ValueError(f"mask inside {span.kind} span [{span.start}, {span.end}) is not all {expected}")
            position = span.end
        if position != n:
            raise ValueError(f"spans cover {position} of {n} response_ids")
        self._check_images()
        return self

    def _check_images(self) -> None:
        prompt, position = len(self.prompt_ids), 0
        for image in self.images:
            if image.start is None or image.end is None:
                continue
            if not position <= image.start < image.end <= prompt + len(self.response_ids):
                raise ValueError(f"image {image.file} at [{image.start}, {image.end}) is not inside the ids, in order")
            if any(self.response_mask[max(0, image.start - prompt) : max(0, image.end - prompt)]):
                raise ValueError(f"image {image.file} at [{image.start}, {image.end}) lies on generated tokens")
            position = image.end
