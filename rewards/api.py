"""Parts that a scoring server computes: a whole answer's score, or one for each step of its reasoning."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from ..schemas.errors import ConfigError, InfraError
from ..schemas.reward_config import ApiPart, StepsPart
from ..schemas.score_api import BatchRequest, BatchResponse, ScoreRequest, ScoreResponse
from ..schemas.surrogates import without_lone_surrogates
from ..schemas.trajectory import Trajectory
from ..schemas.validation import describe
from .parts import Measured
from .placement import FINAL
from .service import ScoringService
from .steps import split_steps, step_ends


class ServedPart:
    """A part with a server behind it, open as long as the rewards are."""

    def __init__(self, name: str, service: ScoringService) -> None:
        self.name = name
        self.service = service

    async def __aenter__(self) -> Self:
        await self.service.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.service.__aexit__(kind, error, trace)


class ApiScorer(ServedPart):
    """POSTs a `ScoreRequest` to the part's address; see `schemas.score_api` for what it answers."""

    def __init__(self, name: str, part: ApiPart) -> None:
        super().__init__(name, ScoringService(part.service))

    async def __call__(self, trajectory: Trajectory) -> Measured:
        """Raises: as `ScoringService.post`; InfraError also for an answer that is no score."""
        answer = await self.service.post("", body_of(request_of(trajectory), trajectory))
        found = _parsed(answer, self.service.settings.url)
        logged = {f"{self.name}/{name}": value for name, value in found.parts.items()}
        return Measured({self.name: _number(found, self.service.settings.url)}, logged, found.correct)


class StepScorer(ServedPart):
    """A process reward: splits the model's reasoning into steps, and asks `/v1/score/batch` for one score each.

    A step is sent as `solution_str` with what stands before it in `extra_info.previous_steps`, and its number in
    `extra_info.step`.
    """

    def __init__(self, name: str, part: StepsPart) -> None:
        super().__init__(name, ScoringService(part.service))
        self._part = part

    async def __call__(self, trajectory: Trajectory) -> Measured:
        """Raises: as `ApiScorer`."""
        steps = split_steps(trajectory, self._part.delimiter)
        if not steps:
            return Measured({self.name: 0.0})
        base = request_of(trajectory)
        items = [
            base.model_copy(
                update={
                    "solution_str": step.text,
                    "extra_info": {
                        **base.extra_info,
                        "step": number,
                        "previous_steps": [earlier.text for earlier in steps[:number]],
                    },
                }
            )
            for number, step in enumerate(steps)
        ]
        url = self.service.settings.url
        answer = await self.service.post("/v1/score/batch", body_of(BatchRequest(items=items), trajectory))
        scores = [_number(result, url) for result in _parsed_batch(answer, len(steps), url)]
        share = 1.0 / len(steps) if self._part.aggregation == "mean" else 1.0
        ends = await asyncio.to_thread(step_ends, trajectory, steps)  # it decodes a long turn for tens of milliseconds
        placed = tuple((end, share * score) for end, score in zip(ends, scores, strict=True) if end != FINAL)
        return Measured(
            {self.name: math.fsum(share * score for score in scores)},
            {f"{self.name}/steps": float(len(steps)), f"{self.name}/lowest": min(scores)},
            placed=placed,
        )


def request_of(trajectory: Trajectory) -> ScoreRequest:
    """What a server is told of a trajectory: the question and the model's last words, never tool output."""
    sample = trajectory.sample
    return ScoreRequest(
        data_source=sample.data_source,
        solution_str=trajectory.answer_text,
        ground_truth=sample.ground_truth,
        extra_info={**sample.extra_info, "num_turns": trajectory.num_turns},
        messages=sample.messages,
    )


def body_of(request: ScoreRequest | BatchRequest, trajectory: Trajectory) -> Any:
    """The request as JSON values, without lone surrogates.

    Raises:
        ConfigError: the sample holds what cannot be sent.
    """
    try:
        return request.model_dump(mode="json")
    except ValueError:  # also for lone surrogates
        pass
    try:
        return to_jsonable_python(without_lone_surrogates(request.model_dump()))
    except ValueError as error:
        name = trajectory.sample.sample_id
        raise ConfigError(f"sample {name!r}: extra_info or messages cannot be sent as JSON: {error}") from error


def _parsed(answer: Any, url: str) -> ScoreResponse:
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = {"score": answer}
    try:
        return ScoreResponse.model_validate(answer)
    except ValidationError as error:
        raise InfraError(f"{url} answered with something else than a score: {describe(error)}") from None


def _parsed_batch(answer: Any, number: int, url: str) -> list[ScoreResponse]:
    try:
        results = BatchResponse.model_validate(answer).results
    except ValidationError as error:
        raise InfraError(f"{url} answered with something else than scores: {describe(error)}") from None
    if len(results) != number:
        raise InfraError(f"{url} answered with {len(results)} scores for {number} steps")
    return results


def _number(found: ScoreResponse, url: str) -> float:
    if found.score is None:
        raise InfraError(f"{url} could not score: {found.error or 'it gave no score'}")
    return found.score
