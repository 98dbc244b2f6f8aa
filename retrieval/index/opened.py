"""Open an index that is finished and whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...schemas.errors import ConfigError
from ..bm25 import Bm25Index
from ..bm25_text import ANALYSIS
from .corpus_files import corpus_state
from .file_checks import check_files
from .manifest import AGAIN, BM25, MANIFEST, Manifest, read_manifest


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    """
    Attributes:
        bm25: which is the store of the passages too.
        corpus: `unchanged`, `changed` or `absent` when it was opened; corpus_changes: what had changed.
    """

    folder: Path
    manifest: Manifest
    bm25: Bm25Index
    corpus: str
    corpus_changes: list[str]
    identity: tuple[int, int, int]

    @property
    def state(self) -> str:
        """`current`, or what has become of the folder since: `replaced` or `deleted`. What was opened is served on."""
        try:
            return "current" if _identity(self.folder) == self.identity else "replaced"
        except OSError:
            return "deleted"


def open_index(folder: Path, *, verify: bool | None = None) -> OpenedIndex:
    """Map an index into memory; without `verify` it takes milliseconds, whatever its size.

    Args:
        verify: read every byte of it and compare checksums, and not only sizes; None does so up to 1 GiB.

    Raises:
        ConfigError: it is not finished, damaged, foreign, or of another version; the text says what to do.
    """
    manifest = read_manifest(folder)
    if manifest.analysis != ANALYSIS:
        raise ConfigError(f"index {folder}: was built with another text analysis; build it again with --restart")
    check_files(folder / BM25, manifest.files, verify=verify, again=AGAIN)
    identity = _identity(folder)
    bm25 = Bm25Index.open(folder / BM25)
    if len(bm25) != manifest.passages:
        raise ConfigError(
            f"index {folder}: is damaged: it holds {len(bm25)} passages and should hold {manifest.passages}; "
            "build it again with --restart"
        )
    return OpenedIndex(folder, manifest, bm25, *corpus_state(manifest.corpus), identity)


def _identity(folder: Path) -> tuple[int, int, int]:
    found = (folder / MANIFEST).stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns
