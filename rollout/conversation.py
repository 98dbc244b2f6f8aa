"""The tokens of one trajectory: ids as sampled, mask, logprobs and spans that always add up."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..schemas.generation import TokenOutput
from ..schemas.trajectory import Span


@dataclass(slots=True)
class Conversation:
    """Grows by assistant turns and context; the four lists keep one length.

    Attributes:
        prompt_ids: [P]. response_ids, response_mask, response_logprobs: [R] each.
    """

    prompt_ids: list[int]
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    response_logprobs: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """[P + R] ids: what the engine is given next."""
        return self.prompt_ids + self.response_ids

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    def add_assistant(self, turn: int, output: TokenOutput) -> Span:
        """Append generated ids exactly as sampled."""
        return self._add("assistant", turn, output.token_ids, output.logprobs)

    def add_context(self, turn: int, token_ids: list[int]) -> Span:
        """Append ids that the model did not write; their logprobs are 0.0."""
        return self._add("context", turn, token_ids, [0.0] * len(token_ids))

    def _add(self, kind: str, turn: int, token_ids: list[int], logprobs: list[float]) -> Span:
        start = len(self.response_ids)
        self.response_ids += token_ids
        self.response_logprobs += logprobs
        self.response_mask += [int(kind == "assistant")] * len(token_ids)
        span = Span.model_validate({"kind": kind, "turn": turn, "start": start, "end": start + len(token_ids)})
        self.spans.append(span)
        return span
