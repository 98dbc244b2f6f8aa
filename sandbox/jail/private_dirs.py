"""The private folders of a slot: each call finds them empty."""

from __future__ import annotations

import os

from . import policy, syscalls
from .enter import attach, mount_private_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_MB = 64


class PrivateDir:
    """A folder on a tmpfs that is exchanged for a new one after a call has touched it."""

    def __init__(self, path: str, mode: str, binds: Sequence[str]) -> None:
        """`binds` are host paths of the interpreter: those at or under `path` must be shown in each new tmpfs."""
        self._path = path
        self._mode = mode
        self._binds = [bind for bind in binds if bind.startswith(f"{path}/")]
        self._mounted = False
        self._untouched: object = None

    def exchange(self) -> None:
        """Put a new, empty folder in the place of the one that is there."""
        self._mounted, self._untouched = True, None
        self.renew()

    def renew(self) -> None:
        # A program that left the folder alone has left nothing in it: then it need not pay for a new one.
        if self._mounted and not self._binds and self._state() == self._untouched:
            return
        trees = [(syscalls.clone_mount(bind, 0), bind) for bind in self._binds]
        if self._mounted:
            syscalls.unmount(self._path)
        mount_private_dir(self._path, self._mode, DEFAULT_MB)
        self._mounted = True
        for tree, bind in trees:
            attach(tree, bind)
        self._untouched = self._state()

    def _state(self) -> object:
        # Any change of the folder itself (an entry, its mode, an attribute) shows in its ctime, and the clock cannot
        # be set by a program; the counts and the attributes show what was made within one tick of that clock.
        folder, volume, attributes = os.stat(self._path), os.statvfs(self._path), os.listxattr(self._path)
        counts = (volume.f_blocks, volume.f_bfree, volume.f_ffree)
        return (folder.st_ctime_ns, folder.st_mode, folder.st_uid, counts, attributes)


def private_dirs(binds: Sequence[str]) -> list[PrivateDir]:
    return [PrivateDir(path, mode, binds) for path, mode in policy.PRIVATE_DIRS]


def resize(size_mb: int) -> None:
    """Give the private folders another size than the default. `renew` then sees that they were touched."""
    for path, mode in policy.PRIVATE_DIRS:
        mount_private_dir(path, mode, size_mb, syscalls.MS_REMOUNT)
