"""What an inference engine is asked and what it answers: tokens in, tokens out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_NO_ID = 1 << 31

FinishReason = Literal["stop", "length"]


class SamplingParams(BaseModel):
    """How to sample. `temperature=0` is greedy; `top_k=0` means no such limit."""

    model_config = ConfigDict(extra="forbid")

    temperature: float = Field(default=1.0, ge=0, le=100, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    stop_token_ids: list[int] = Field(default_factory=list)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ImageInput:
    """An image in a prompt. Attributes:
    pixels: an RGB image of Pillow. start, end: its tokens, [start, end) in the prompt's ids.
    """

    pixels: Any
    start: int
    end: int


class TokenOutput(BaseModel):
    """Sampled tokens, as sampled.

    Attributes:
        token_ids: [n] ids of 31 bits, the stop token included when there was one.
        logprobs: [n] natural-log probabilities under the model at temperature 1 (vLLM's `raw_logprobs`), all finite.
        finish_reason: `stop` for a stop token, `length` for `max_tokens` or the context's end.
    """

    model_config = ConfigDict(extra="forbid")

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason

    @model_validator(mode="after")
    def _usable(self) -> TokenOutput:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token ids but {len(self.logprobs)} logprobs")
        if self.token_ids and not 0 <= min(self.token_ids) <= max(self.token_ids) < _NO_ID:
            raise ValueError(
                f"token ids must be from 0 to 2^31 - 1 (got {min(self.token_ids)} to {max(self.token_ids)})"
            )
        if not math.isfinite(sum(self.logprobs)):  # one that is not makes the sum so
            raise ValueError("a logprob is not a finite number")
        return self
