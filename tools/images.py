"""Images that tools answer with, read into the RGB images of Pillow that verl and vLLM's processors take."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..schemas.errors import ConfigError, ErrorKind, ToolError


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Attributes:
    max_images: of one answer. max_bytes: of one image's file. max_pixels: of one image.
    """

    max_images: int = 8
    max_bytes: int = 20 * 2**20
    max_pixels: int = 4096 * 4096


DEFAULT_LIMITS = ImageLimits()


def require_pillow(where: str) -> None:
    """
    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{where}: images need Pillow; install it with: pip install 'rollbox[vision]'") from error


def image_of(data: Any, limits: ImageLimits = DEFAULT_LIMITS) -> Any:
    """The RGB image in `data`: an image of Pillow, or a file (PNG, JPEG, …) as bytes, base64 or data URI.

    A file's size is read from its header and checked before anything is unpacked. Blocks: use a thread.

    Raises:
        ConfigError: Pillow is not installed. ToolError: it is no image, not a still one, or larger than the limits.
    """
    require_pillow("tool answer")
    from PIL import Image

    if isinstance(data, Image.Image):
        return _rgb(data, limits)
    try:
        with Image.open(io.BytesIO(_file(data, limits))) as opened:
            return _rgb(opened, limits)
    except Image.DecompressionBombError as error:
        raise ToolError(f"it is too large ({error})", ErrorKind.OUTPUT_LIMIT) from error
    # A ValueError of base64 and of some formats, a SyntaxError of broken PNGs.
    except (binascii.Error, OSError, ValueError, SyntaxError) as error:
        raise ToolError(f"it cannot be read ({str(error)[:120]})") from error


def read_images(given: Sequence[Any], limits: ImageLimits = DEFAULT_LIMITS) -> tuple[list[Any], list[ToolError]]:
    """The images that can be read, and why each of the others is left out. Blocks: use a thread."""
    images: list[Any] = []
    problems: list[ToolError] = []
    for data in given:
        try:
            if len(images) == limits.max_images:
                raise ToolError(f"an answer may hold {limits.max_images}", ErrorKind.OUTPUT_LIMIT)
            images.append(image_of(data, limits))
        except ToolError as error:
            problems.append(error)
    return images, problems


def with_notes(text: str, problems: Sequence[Exception]) -> str:
    """The text, and a line for each image that the model is not shown."""
    return "\n".join([*([text] if text else []), *(f"(An image was left out: {problem}.)" for problem in problems)])


def _file(data: Any, limits: ImageLimits) -> bytes:
    if isinstance(data, str):
        _check_bytes(len(data) * 3 // 4, limits)  # before it is decoded
        if data.startswith("data:"):
            _, separator, data = data.partition(";base64,")
            if not separator:
                raise ToolError("it is a data URI without base64")
        data = base64.b64decode(data, validate=True)
    if not isinstance(data, bytes):
        raise ToolError(f"it is of type {type(data).__name__}")
    _check_bytes(len(data), limits)
    return data


def _check_bytes(size: int, limits: ImageLimits) -> None:
    if size > limits.max_bytes:
        raise ToolError(f"it has {size} bytes (limit {limits.max_bytes})", ErrorKind.OUTPUT_LIMIT)


def _rgb(image: Any, limits: ImageLimits) -> Any:
    width, height = image.size
    if not width or not height:
        raise ToolError("it has no pixels")
    if width * height > limits.max_pixels:
        raise ToolError(f"it has {width} x {height} pixels (limit {limits.max_pixels})", ErrorKind.OUTPUT_LIMIT)
    if getattr(image, "is_animated", False):
        raise ToolError("it is animated; a still image is needed")
    # Loaded here: an image of Pillow may be a file that nobody has unpacked yet.
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")
