"""How much memory everything inside the jail uses, seen from init."""

from __future__ import annotations

import os
import resource

from . import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE = resource.getpagesize()
_INIT = "1"


class MemoryWatch:
    """Compares the memory of the whole process tree and its private folders with one limit.

    Attributes:
        peak_bytes: the most that was seen, or that the kernel counted for any ended process.
    """

    def __init__(
        self,
        limit_bytes: int,
        processes: Callable[[], list[str]] | None = None,
        folders_bytes: Callable[[], int] | None = None,
    ) -> None:
        """By default all in the jail counts.

        Args:
            processes: lists those to count instead. folders_bytes: what their folders hold.
        """
        self.peak_bytes = 0
        self._limit_bytes = limit_bytes
        self._processes = processes or all_processes
        self._folders_bytes = folders_bytes or _private_dirs_bytes

    def over_limit(self) -> bool:
        """Look once. Costs some 0.1 ms."""
        used = self._folders_bytes() + sum(resident_bytes(pid) for pid in self._processes())
        if used > self._limit_bytes:
            # Resident sizes count a page once per process that shares it, and forks share most of theirs.
            used = self._folders_bytes() + sum(_proportional_bytes(pid) for pid in self._processes())
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._limit_bytes


def all_processes() -> list[str]:
    """Process ids of all in the jail but init."""
    return [name for name in os.listdir("/proc") if name.isdigit() and name != _INIT]


def read(path: str) -> bytes:
    """A process may end at any moment, which shows as ENOENT or ESRCH: then it uses nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return b""


def resident_bytes(pid: str) -> int:
    fields = read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional_bytes(pid: str) -> int:
    kilobytes = 0
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
            kilobytes += int(line.split()[1])
    return kilobytes * 1024


def _private_dirs_bytes() -> int:
    used = 0
    for path, _ in policy.PRIVATE_DIRS:
        state = os.statvfs(path)
        used += (state.f_blocks - state.f_bfree) * state.f_frsize
    return used
