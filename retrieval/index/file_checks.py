"""The files that a part of an index consists of, and whether they are still those that were written."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ...schemas.errors import ConfigError

_VERIFIED_BYTES = 2**30


class IndexFile(BaseModel):
    """A file of the index, by which damage is found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size_bytes: int
    crc32: int


def described(paths: Iterable[Path]) -> dict[str, IndexFile]:
    """The files as a manifest keeps them, by name; each is read."""
    return {path.name: IndexFile(size_bytes=path.stat().st_size, crc32=_crc32_of(path)) for path in sorted(paths)}


def check_files(folder: Path, files: Mapping[str, IndexFile], *, verify: bool | None, again: str) -> None:
    """Compare the files of a part of an index, `folder`, with its manifest: their sizes, or every byte.

    Args:
        verify: every byte; None does so up to 1 GiB. again: how to build it again, for the error's text.

    Raises:
        ConfigError: one is missing or damaged.
    """
    if verify is None:
        verify = sum(file.size_bytes for file in files.values()) <= _VERIFIED_BYTES
    for name, expected in files.items():
        path = folder / name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != expected.size_bytes:
                said = f"has {size_bytes} bytes and should have {expected.size_bytes}"
            elif verify and _crc32_of(path) != expected.crc32:
                said = "has other contents than were written"
            else:
                continue
        except OSError as error:
            said = f"cannot be read: {error.strerror}"
        raise ConfigError(f"index {folder.parent}: is damaged: {folder.name}/{name} {said}; {again}")


def _crc32_of(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            found = zlib.crc32(block, found)
    return found
