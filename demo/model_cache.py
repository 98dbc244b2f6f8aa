"""Models that the demo makes, kept in a cache directory and built once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def default_cache_dir() -> Path:
    """`$ROLLBOX_CACHE`, else `~/.cache/rollbox`."""
    configured = os.environ.get("ROLLBOX_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "rollbox"


def built_once(name: str, build: Callable[[Path], None], cache_dir: Path | None = None) -> Path:
    """The directory `name` of the cache, which `build` fills if it is not there yet.

    The name must hold a hash of whatever determines the content. Two processes do not build at the same time, and a
    build that is interrupted leaves nothing that looks finished.

    Args:
        build: is given an empty directory to write into.
    """
    root = cache_dir or default_cache_dir()
    root.mkdir(parents=True, exist_ok=True)
    final = root / name
    if final.is_dir():
        return final
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.is_dir():  # another process built it while this one waited
            return final
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=root))
        try:
            build(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return final
