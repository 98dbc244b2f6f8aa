"""Images that tools answer with, as the PIL images that verl and vLLM's processors take."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

from ..schemas.errors import ConfigError, InfraError


def require_pillow(where: str) -> None:
    """
    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{where}: images need Pillow; install it with: pip install pillow") from error


def image_of(data: str) -> Any:
    """The RGB image in base64 `data` (PNG, JPEG, …).

    Raises:
        ConfigError: Pillow is not installed. InfraError: the data are no image.
    """
    require_pillow("tool answer")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as opened:
            return opened.convert("RGB")
    except (binascii.Error, OSError, Image.DecompressionBombError) as error:
        raise InfraError(f"an answer holds an image that cannot be read: {error}") from error
