"""What a scoring server is asked, and what it answers: `POST /score` and `POST /v1/score/batch`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MAX_BATCH = 4096


class ScoreRequest(BaseModel):
    """One answer. The names are those of verl's reward functions.

    Attributes:
        solution_str: the model's own last words, without tool output.
        messages: the question, for models that judge the answer by it.
    """

    model_config = ConfigDict(extra="forbid")

    data_source: str
    solution_str: str
    ground_truth: str | None = None
    extra_info: dict[str, Any] = Field(default_factory=dict)
    messages: list[dict[str, Any]] = Field(default_factory=list)


class ScoreResponse(BaseModel):
    """The score. Attributes: correct: None where it is not known. parts: numbers by name, to be logged.

    Attributes:
        error: why it could not be scored, in a batch; there is no score then, and the sample is to be masked.
    """

    score: float | None = Field(default=None, allow_inf_nan=False)
    correct: bool | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    error: str | None = None


class BatchRequest(BaseModel):
    """Many answers."""

    model_config = ConfigDict(extra="forbid")

    items: list[ScoreRequest] = Field(min_length=1, max_length=MAX_BATCH)


class BatchResponse(BaseModel):
    """As many scores, in the same order."""

    results: list[ScoreResponse]
