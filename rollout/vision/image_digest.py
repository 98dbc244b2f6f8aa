"""Whether the images of questions are the same as before, though their names are."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from ...schemas.errors import ConfigError
from ...schemas.trajectory import Sample

_AT_A_TIME = 64


async def image_digest(samples: Sequence[Sample]) -> str | None:
    """Of the contents of the files that samples name; None where they name none. Other images are known by the samples
    themselves.

    Not of sizes and times: a data set that is copied or checked out anew has other times, and the same images. Each
    trajectory reads and decodes its own in any case, which takes ten times as long.

    Raises:
        ConfigError: a file cannot be read.
    """
    files = {file: sample.sample_id for sample in samples for file in sample.images if _is_path(file)}
    if not files:
        return None
    digest = hashlib.sha256()
    names = list(files.items())
    for start in range(0, len(names), _AT_A_TIME):  # between two the run can be stopped
        for found in await asyncio.to_thread(_digests, names[start : start + _AT_A_TIME]):
            digest.update(found)
    return digest.hexdigest()[:16]


def _is_path(image: object) -> bool:
    return isinstance(image, str) and not image.startswith("data:")


def _digests(files: list[tuple[str, str]]) -> list[bytes]:
    return [_digest(path, sample_id) for path, sample_id in files]


def _digest(path: str, sample_id: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise ConfigError(f"sample {sample_id!r}: the image {path} cannot be read: {error.strerror}") from error
