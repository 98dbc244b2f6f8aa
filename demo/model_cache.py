"""A directory built once: atomically, and by one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def default_cache_dir() -> Path:
    """`$ROLLBOX_CACHE`, else `~/.cache/rollbox`."""
    named = os.environ.get("ROLLBOX_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "rollbox"


def built_once(cache_dir: Path, name: str, build: Callable[[Path], None]) -> Path:
    """`cache_dir/name`, filled by `build` if it is not there yet.

    `build` gets an empty directory that takes its final name only when `build` has returned, so a directory of that
    name is always whole. A second process waits for the first and uses what it built. Raises what `build` raises.
    """
    final = cache_dir / name
    if final.is_dir():
        return final
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _locked(cache_dir / f"{name}.lock"):
        if not final.is_dir():
            _build_into(final, build)
    return final


def _build_into(final: Path, build: Callable[[Path], None]) -> None:
    prefix = f"{final.name}.partial-"
    # A builder that was killed left its directory behind; we hold the lock, so nobody is at work in it.
    for leftover in final.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        build(partial)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
