"""The tokens of one trajectory: ids as sampled, mask, logprobs, spans and images that always add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..schemas.generation import ImageInput, TokenOutput
from ..schemas.trajectory import Span
from .vision.picture import Picture

Block = tuple[int, int]


@dataclass(slots=True)
class Conversation:
    """Grows by assistant turns and context; the four lists keep one length.

    Attributes:
        prompt_ids: [P]. response_ids, response_mask, response_logprobs: [R] each.
        pictures: (picture, [start, end) in `ids`), in order; without its tokens where none are known.
    """

    prompt_ids: list[int]
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    response_logprobs: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    pictures: list[tuple[Picture, Block | None]] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """[P + R] ids: what the engine is given next."""
        return self.prompt_ids + self.response_ids

    @property
    def images(self) -> list[ImageInput]:
        """The images in `ids`."""
        return [ImageInput(picture.image, *block) for picture, block in self.pictures if block is not None]

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    def add_assistant(self, turn: int, output: TokenOutput) -> Span:
        """Append generated ids exactly as sampled."""
        return self._add("assistant", turn, output.token_ids, output.logprobs)

    def add_context(self, turn: int, token_ids: list[int]) -> Span:
        """Append ids that the model did not write; their logprobs are 0.0."""
        return self._add("context", turn, token_ids, [0.0] * len(token_ids))

    def add_pictures(self, pictures: Sequence[Picture], blocks: Sequence[Block | None]) -> None:
        """Note which images the ids hold that were added last."""
        self.pictures += zip(pictures, blocks, strict=True)

    def _add(self, kind: str, turn: int, token_ids: list[int], logprobs: list[float]) -> Span:
        start = len(self.response_ids)
        self.response_ids += token_ids
        self.response_logprobs += logprobs
        self.response_mask += [int(kind == "assistant")] * len(token_ids)
        span = Span.model_validate({"kind": kind, "turn": turn, "start": start, "end": start + len(token_ids)})
        self.spans.append(span)
        return span
