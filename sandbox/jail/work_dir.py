"""Files into the work dir before the program, and out of it afterwards."""

from __future__ import annotations

import binascii
import os
import stat

from . import policy
from .steps import StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_program(name: str, code: bytes, executable: bool) -> None:
    """
    Raises:
        StepError: it does not fit.
    """
    _write(name, code, "code", 0o755 if executable else 0o644)


def write_files(files: dict[str, bytes]) -> None:
    """Write `files` by work-dir name.

    Raises:
        StepError: with the name of the file that cannot be written: a folder is in its way, or it does not fit.
    """
    for name, content in files.items():
        _write(name, content, f"files.{name}")


def _write(name: str, content: bytes, field: str, mode: int = 0o644) -> None:
    path = f"{policy.WORK_DIR}/{name}"
    try:
        if "/" in name:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            while content:  # a full tmpfs takes what fits, and refuses the rest
                content = content[os.write(fd, content) :]
        finally:
            os.close(fd)
    except OSError as error:
        raise StepError("work dir files", error, field) from error


def fetch(names: Iterable[str]) -> tuple[dict[str, str], dict[str, int]]:
    """Read regular files as base64; also the sizes of those left out because the total passes `MAX_FETCH_BYTES`.

    The program is gone by now, but what it left may be a trap: no link is followed, on no part of the path.
    """
    fetched: dict[str, str] = {}
    unfetched: dict[str, int] = {}
    room = policy.MAX_FETCH_BYTES
    for name in names:
        content = _read_beneath(name, room)
        if isinstance(content, int):
            unfetched[name] = content
        elif content is not None:
            room -= len(content)
            fetched[name] = binascii.b2a_base64(content, newline=False).decode()
    return fetched, unfetched


def _read_beneath(name: str, room: int) -> bytes | int | None:
    """The content of a regular file, or its size if that is more than `room`, or None if it is no such file."""
    try:
        fd = _open_beneath(name)
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                return None
            if state.st_size > room:
                return state.st_size
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)
    except OSError:
        return None


def _open_beneath(name: str) -> int:
    *folders, last = name.split("/")
    folder = os.open(policy.WORK_DIR, _DIR_FLAGS)
    try:
        for part in folders:
            below = os.open(part, _DIR_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(last, _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
