"""The lock of an index folder: one process at a time builds in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...schemas.errors import ConfigError

LOCK = ".lock"


@contextmanager
def sole_builder(out: Path) -> Iterator[None]:
    """The folder, made where it is missing, and ours alone while the context lasts. A killed process's lock is gone.

    Raises:
        ConfigError: it cannot be made, opened or locked, or another process builds in it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        fd = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be made or opened: {error.strerror}") from error
    try:
        _lock(out, fd)
        yield
    finally:
        os.close(fd)


def _lock(out: Path, fd: int) -> None:
    try:
        _lock_folder(out, fd)
    except BlockingIOError:
        raise ConfigError(f"index {out}: another process is building it") from None
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be locked against a second build: {error.strerror}") from error


def _lock_folder(out: Path, fd: int) -> None:
    now = fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        fcntl.flock(fd, now)
    except BlockingIOError:
        raise
    except OSError:
        # NFS locks only what is open for writing, which a folder cannot be. The file stays: deleted while another
        # process opens it, it would leave two with a lock each.
        file = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        os.dup2(file, fd, inheritable=False)
        os.close(file)
        fcntl.flock(fd, now)
