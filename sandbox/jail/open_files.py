"""Open regular files of a head: a fork shares their offsets with the process that it was forked from."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress

from . import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_ONCE = os.O_CREAT | os.O_EXCL | os.O_TRUNC
_BELOW = tuple(f"{path}/" for path, _ in policy.PRIVATE_DIRS)
_DELETED = " (deleted)"


class OpenFile:
    """One descriptor of a regular file below the private folders, as it was."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._offset = os.lseek(fd, 0, os.SEEK_CUR)
        self._flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        self._inheritable = os.get_inheritable(fd)

    def put_back(self) -> None:
        """Give it its offset back, and its file, if something else has its name now."""
        now, named = os.fstat(self._fd), None
        with suppress(OSError):
            named = os.stat(self._path)
        if named is not None and (named.st_dev, named.st_ino) != (now.st_dev, now.st_ino):
            self.open_anew()
        else:
            os.lseek(self._fd, self._offset, os.SEEK_SET)

    def open_anew(self) -> None:
        """Open what has its name now, at the same offset. One without a name is copied into a new file without one."""
        flags = self._flags & ~_ONCE
        nameless = self._path.endswith(_DELETED)
        new = self._nameless_copy() if nameless else os.open(self._path, flags | os.O_CLOEXEC)
        try:
            os.lseek(new, self._offset, os.SEEK_SET)
            os.dup2(new, self._fd, self._inheritable)
        finally:
            os.close(new)

    def _nameless_copy(self) -> int:
        folder = next(path for path in _BELOW if self._path.startswith(path))
        new = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # The offset is the same description's as the other process's: read without it.
        size, done = os.fstat(self._fd).st_size, 0
        while done < size:
            data = os.pread(self._fd, 1 << 20, done)
            if not data:
                break
            os.write(new, data)
            done += len(data)
        return new


def seen(ours: Iterable[int]) -> tuple[list[OpenFile], bool]:
    """The open regular files below the private folders, and whether there are pipes or sockets.

    Args:
        ours: descriptors that are no business of the cells'.
    """
    names = os.listdir("/proc/self/fd")
    known = {str(fd) for fd in ours}
    found, channels = [], False
    for name in names:
        if name not in known:
            # One of them is the listing's own, and is gone by now.
            with suppress(OSError):
                path, mode = os.readlink(f"/proc/self/fd/{name}"), os.fstat(int(name)).st_mode
                if path.startswith(_BELOW) and stat.S_ISREG(mode):
                    found.append(OpenFile(int(name), path))
                channels |= stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return found, channels


def put_back(files: Iterable[OpenFile]) -> None:
    for file in files:
        with suppress(OSError):
            file.put_back()


def open_anew(files: Iterable[OpenFile]) -> None:
    for file in files:
        with suppress(OSError):
            file.open_anew()
