"""Load a model's multimodal processor from a local directory, also where torchvision is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...schemas.errors import ConfigError

_FILES = ("processor_config.json", "preprocessor_config.json")


def load_processor(directory: str | Path, tokenizer: Any) -> Any | None:
    """The processor, with `tokenizer` as its own; None where the directory holds none. Blocks; needs transformers.

    transformers wants torchvision for every model that also takes videos. Without it the processor is put together
    from the part for images alone, which works on Pillow's images.

    Raises:
        ConfigError: there is one, and it cannot be loaded.
    """
    if not any((Path(directory) / name).is_file() for name in _FILES):
        return None
    from transformers import AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(str(directory), local_files_only=True)
    except ImportError:
        processor = _without_video(Path(directory), tokenizer)
    except Exception as error:
        raise ConfigError(f"processor: cannot load {directory}: {error}") from error
    if getattr(processor, "image_processor", None) is None:
        processor = _without_video(Path(directory), tokenizer)
    if processor is not None:
        processor.tokenizer = tokenizer
    return processor


def _without_video(directory: Path, tokenizer: Any) -> Any | None:
    """The processor without its part for videos; None where the files name no processor for images."""
    import transformers

    config = _read(directory)
    image_config = config.get("image_processor", config)
    kind, image_kind = config.get("processor_class"), image_config.get("image_processor_type")
    if not kind or not image_kind:
        return None
    base = getattr(transformers, kind, None)
    # Names differ between releases: with `Fast` at the end those that need torchvision, with `Pil` those that do not.
    stem = str(image_kind).removesuffix("Fast").removesuffix("Pil")
    image_class = getattr(transformers, f"{stem}Pil", None) or getattr(transformers, stem, None)
    if base is None or image_class is None:
        raise ConfigError(f"processor: {directory} asks for {kind} and {image_kind}, which transformers does not have")

    class ImagesOnly(base):  # type: ignore[misc, valid-type]
        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            if argument is None and argument_name == "video_processor":
                return type(None)
            return super().check_argument_for_proper_class(argument_name, argument)

    # verl and vLLM tell models apart by the name of this class.
    ImagesOnly.__name__ = ImagesOnly.__qualname__ = base.__name__
    try:
        parts = {"image_processor": image_class.from_pretrained(str(directory)), "tokenizer": tokenizer}
        return ImagesOnly(**parts, video_processor=None, chat_template=getattr(tokenizer, "chat_template", None))
    except Exception as error:
        raise ConfigError(f"processor: cannot load {kind} of {directory} without torchvision: {error}") from error


def _read(directory: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in reversed(_FILES):
        path = directory / name
        if path.is_file():
            try:
                merged |= json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(f"processor: {path} is not JSON: {error}") from error
    return merged
