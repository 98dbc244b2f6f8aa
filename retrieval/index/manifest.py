"""The manifest of an index: what is in it, of what it was made, and which files it consists of."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...schemas.errors import ConfigError
from ...schemas.validation import validated
from ..bm25_text import ANALYSIS
from .corpus_files import CorpusFile
from .file_checks import IndexFile

FORMAT = 1
"""Raised when older versions of Rollbox could not read what is written now."""
MANIFEST, BUILDING, PROGRESS, BAD_LINES = "manifest.json", "building.json", "progress.jsonl", "bad_lines.jsonl"
BM25, DENSE = "bm25", "dense"
_KIND = "rollbox index"
AGAIN = "build it again with --restart"


class Manifest(BaseModel):
    """
    Attributes:
        bad_records: left out of the index; `bad_lines.jsonl` has them.
        analysis: of the text, see `bm25_text`. software: versions that built it.
        files: of `bm25/`, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    kind: str = _KIND
    passages: int
    bad_records: int
    corpus: list[CorpusFile]
    analysis: dict[str, Any] = Field(default_factory=lambda: dict(ANALYSIS))
    software: dict[str, str]
    files: dict[str, IndexFile]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put `manifest` in its place at once, whole and on the disk."""
    content = manifest.model_dump(mode="json")
    write_at_once(folder / MANIFEST, json.dumps({**content, "checksum": _checksum(content)}, indent=1).encode())


def read_manifest(folder: Path) -> Manifest:
    """
    Raises:
        ConfigError: there is no finished index of ours in `folder`, it is damaged, or of a newer version.
    """
    if not folder.is_dir():
        raise ConfigError(f"index {folder}: there is no such folder; make it with: rollbox retriever index")
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise _no_manifest(folder) from None
    except OSError as error:
        raise ConfigError(f"index {folder}: {MANIFEST} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"index {folder}: {MANIFEST} is damaged: {error}; {AGAIN}") from error
    if not isinstance(content, dict) or "checksum" not in content:
        raise ConfigError(f"index {folder}: {MANIFEST} is not of an index of Rollbox's")
    if content.pop("checksum") != _checksum(content):
        raise ConfigError(f"index {folder}: {MANIFEST} is damaged: its checksum does not fit; {AGAIN}")
    if content.get("kind") != _KIND:
        raise ConfigError(f"index {folder}: {MANIFEST} is not of an index of Rollbox's")
    if content.get("format") != FORMAT:
        raise ConfigError(
            f"index {folder}: has format {content.get('format')}, and this version of Rollbox reads format {FORMAT}; "
            f"use the version that made it ({content.get('software', {}).get('rollbox', 'unknown')}), or {AGAIN}"
        )
    return validated(Manifest, content, f"index {folder}: {MANIFEST}")


def let_others_read(folder: Path) -> None:
    """tantivy keeps some of its files to their owner; whoever serves the index may be another user."""
    for path in (folder / BM25).iterdir():
        path.chmod(path.stat().st_mode | 0o444)


def write_at_once(path: Path, content: bytes) -> None:
    """Replace a file so that after a crash it is either the old one or the new."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring names, and not only contents, to the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _no_manifest(folder: Path) -> ConfigError:
    try:
        command = json.loads((folder / BUILDING).read_bytes())["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return ConfigError(f"index {folder}: is not an index: it holds no {MANIFEST}")
    return ConfigError(f"index {folder}: is not finished; go on with: {command}")
