"""The files of a corpus, and whether they are still those that were indexed."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ...schemas.errors import ConfigError
from .corpus_records import SUFFIXES

_BLOCKS = 16
_BLOCK_BYTES = 65_536
_SHOWN_CHARS = 200


class CorpusFile(BaseModel):
    """One file as it was indexed. `fingerprint`: SHA-256 of the size and of 16 blocks of 64 KiB, evenly spread."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    size_bytes: int
    mtime_ns: int
    fingerprint: str

    @classmethod
    def of(cls, path: Path) -> CorpusFile:
        """
        Raises:
            ConfigError: it cannot be read.
        """
        try:
            found = path.stat()
            return cls(
                path=str(path.resolve()),
                size_bytes=found.st_size,
                mtime_ns=found.st_mtime_ns,
                fingerprint=_fingerprint(path, found.st_size),
            )
        except OSError as error:
            raise ConfigError(f"corpus {path}: cannot be read: {error.strerror}") from error

    def changed(self) -> str | None:
        """What differs from the file that is there now; None where nothing does. A new time alone is no difference."""
        path = Path(self.path)
        try:
            found = path.stat()
            if found.st_size != self.size_bytes:
                return f"{self.path} has {found.st_size} bytes, and had {self.size_bytes}"
            if found.st_mtime_ns != self.mtime_ns and _fingerprint(path, found.st_size) != self.fingerprint:
                return f"{self.path} has other contents"
        except OSError as error:
            return f"{self.path} cannot be read: {error.strerror}"
        return None


def corpus_files(given: Sequence[str], out: Path) -> list[Path]:
    """The files that paths, globs and folders name, each once: the given in their order, those of each by name.

    Args:
        out: the folder of the index, whose own files are no corpus.

    Raises:
        ConfigError: one names nothing, or a file of a form that is not read.
    """
    found: dict[Path, Path] = {}
    for name in given:
        for path in _named(name, out.resolve()):
            found.setdefault(path.resolve(), path)  # links and spellings of one file are one file
    return list(found.values())


def corpus_state(files: Iterable[CorpusFile]) -> tuple[str, list[str]]:
    """`unchanged`, `changed` with what is, or `absent` where none of the files is on this machine."""
    files = list(files)
    if not any(Path(file.path).exists() for file in files):
        return "absent", []
    changes = [change for file in files if (change := file.changed()) is not None]
    return ("changed" if changes else "unchanged"), changes


def _named(name: str, out: Path) -> list[Path]:
    try:
        return _files_of(name, out)
    except OSError as error:
        raise ConfigError(f"corpus {name[:_SHOWN_CHARS]}: cannot be read: {error.strerror}") from error


def _files_of(name: str, out: Path) -> list[Path]:
    if not name:
        raise ConfigError("corpus: a name is empty; give a file, a folder or a glob")
    path = Path(name)
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file() and each.name.endswith(SUFFIXES))
        inside = [each for each in inside if not each.resolve().is_relative_to(out)]
        # A hidden folder inside is somebody's cache or checkout.
        files = [each for each in inside if not any(part.startswith(".") for part in each.relative_to(path).parts)]
        if not files:
            raise ConfigError(f"corpus {name}: holds no file that ends with one of {', '.join(SUFFIXES)}")
        return files
    files = [path] if path.exists() else sorted(map(Path, glob.glob(name, recursive=True)))
    if not files:
        raise ConfigError(f"corpus {name}: there is no such file, folder or glob")
    for file in files:
        if not file.name.endswith(SUFFIXES):
            raise ConfigError(f"corpus {file}: must end with one of {', '.join(SUFFIXES)}")
        if not file.is_file():  # a pipe would be waited for, and cannot be read again after a kill
            raise ConfigError(f"corpus {file}: is no file; a corpus is files, folders and globs of files")
    return files


def _fingerprint(path: Path, size_bytes: int) -> str:
    digest = hashlib.sha256(str(size_bytes).encode())
    with path.open("rb") as file:
        for block in range(_BLOCKS):
            file.seek(max(0, size_bytes - _BLOCK_BYTES) * block // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()
