"""ImageTokens: how a model's processor turns images into token ids, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...schemas.errors import ConfigError, ToolError
from ...schemas.generation import ImageInput

_SPECIAL = ("image_token", "video_token")


class ImageTokens:
    """For processors that write an image as one placeholder token, repeated: Qwen2-VL to Qwen3-VL, LLaVA and others.

    Args:
        processor: a Hugging Face processor with `image_token` and `image_processor`.
        processor_kwargs: what it is called with beside text and images.

    Attributes:
        placeholder: one image in the text of a chat template. image_id: its id.
        reserved_ids: ids that mean something only with pixels behind them, which a model must not write itself.

    Raises:
        ConfigError: the processor has no such token.
    """

    def __init__(self, processor: Any, processor_kwargs: Mapping[str, Any] | None = None) -> None:
        self.processor = processor
        self._kwargs = dict(processor_kwargs or {})
        self._texts = [text for name in _SPECIAL if isinstance(text := getattr(processor, name, None), str)]
        ids = [processor.tokenizer.encode(text, add_special_tokens=False) for text in self._texts]
        self.placeholder: str = getattr(processor, "image_token", None) or ""
        if not self.placeholder or self.placeholder != self._texts[0] or len(ids[0]) != 1:
            raise ConfigError(
                f"processor: {type(processor).__name__} has no token 'image_token' that stands for an image"
            )
        self.image_id: int = ids[0][0]
        self.reserved_ids = frozenset(found[0] for found in ids if len(found) == 1)

    def count(self, image: Any) -> int:
        """Tokens of one image. Blocks: the processor scales it.

        Raises:
            ToolError: the processor does not take this image. ConfigError: it writes more than placeholders.
        """
        try:
            ids = self.processed_ids(self.placeholder, [image])
        except ValueError as error:
            raise ToolError(f"the model's processor does not take it ({str(error)[:120]})") from error
        if not ids or set(ids) != {self.image_id}:
            raise ConfigError(
                f"processor: {type(self.processor).__name__} writes an image as other tokens than a run of "
                "'image_token', which is not supported"
            )
        return len(ids)

    def examples(self, number: int) -> list[Any]:
        """Images of different sizes, to try the processor with."""
        from PIL import Image

        return [Image.new("RGB", (64 + 48 * i, 64), (200, 40 * i, 40)) for i in range(number)]

    def processed_ids(self, text: str, images: Sequence[Any]) -> list[int]:
        """What the processor itself makes of a text with one placeholder for each image. Blocks."""
        made = self.processor(text=[text], images=list(images), add_special_tokens=False, **self._kwargs)
        return [int(token_id) for token_id in made["input_ids"][0]]

    def expand(self, ids: Sequence[int], counts: Sequence[int]) -> list[int]:
        """`ids` with the n-th placeholder repeated `counts[n]` times.

        Raises:
            ConfigError: there are not as many placeholders as images.
        """
        found = sum(token_id == self.image_id for token_id in ids)
        if found != len(counts):
            raise ConfigError(f"chat template: it writes {found} image placeholders for {len(counts)} images")
        left = iter(counts)
        return [each for token_id in ids for each in [token_id] * (next(left) if token_id == self.image_id else 1)]

    def blocks(self, ids: Sequence[int], counts: Sequence[int], offset: int = 0) -> list[tuple[int, int]]:
        """[start, end) of each image in expanded `ids`, the first of which is at `offset`."""
        found: list[tuple[int, int]] = []
        position = 0
        for count in counts:
            position = ids.index(self.image_id, position) if count else position
            found.append((offset + position, offset + position + count))
            position += count
        return found

    def plain(self, text: str) -> str:
        """A text that someone else wrote, in which nothing stands for an image."""
        for special in self._texts:
            if special in text:
                text = text.replace(special, f"{special[0]} {special[1:]}")
        return text


def collapsed(ids: Sequence[int], images: Sequence[ImageInput]) -> list[int]:
    """`ids` with one placeholder for each image, as vLLM takes them: it repeats them itself."""
    kept: list[int] = []
    position = 0
    for image in images:
        kept += ids[position : image.start + 1]
        position = image.end
    return [*kept, *ids[position:]]
