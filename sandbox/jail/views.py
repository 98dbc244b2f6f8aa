"""Views: what a member of a family sees of the file system, and the folders in it that are its own.

The first member sees the slot's own root. For each copy init makes a mount namespace like its own with new private
folders, and keeps it alive; the copy enters it by chroot to its root. Nothing lies above that root: who keeps the right
to chroot can go nowhere by it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from . import folder_copy, policy, private_dirs, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_CLONE_NEWNS = policy.NAMESPACE_FLAGS["CLONE_NEWNS"]


class View:
    """The private folders of one member, open.

    Attributes:
        binds: host paths of the interpreter, shown at the same place inside.
        root: descriptor of a copy's root folder; -1 for the first member.
    """

    def __init__(self, binds: Sequence[str], root: int = -1, namespace: int = -1) -> None:
        """Of the mount namespace that this process is in."""
        self.binds = binds
        self.root = root
        self._namespace = namespace
        self.folders = [folder_copy.open_folder(path) for path, _ in policy.PRIVATE_DIRS]
        self._devices = {os.fstat(fd).st_dev for fd in self.folders}
        self._work_dir_device = os.fstat(self.folders[0]).st_dev

    def used_bytes(self) -> int:
        used = 0
        for fd in self.folders:
            state = os.statvfs(fd)
            used += (state.f_blocks - state.f_bfree) * state.f_frsize
        return used

    def is_of(self, pid: str) -> bool:
        """Whether a process sees these folders."""
        with suppress(OSError):
            if os.stat(f"/proc/{pid}/root/{policy.WORK_DIR}").st_dev == self._work_dir_device:
                return True
            return os.stat(f"/proc/{pid}/root").st_dev in self._devices  # it went into one of them
        return False

    def close(self) -> None:
        """Let go of all of it, and of what it holds."""
        for fd, (path, _) in zip(self.folders, policy.PRIVATE_DIRS, strict=True):
            if self.root < 0:
                # The interpreter may lie below it, and copies that are made later need it there.
                way = {bind.removeprefix(f"{path}/").partition("/")[0] for bind in self.binds}
                with suppress(OSError):
                    folder_copy.clear(fd, way)
            os.close(fd)
        for fd in (self.root, self._namespace):
            if fd >= 0:
                os.close(fd)


def empty_view(binds: Sequence[str], size_mb: int) -> View:
    """A view of its own with nothing in its folders, made from the one that this process has.

    Raises:
        OSError: it cannot be made.
    """
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.unshare(_CLONE_NEWNS)
        try:
            for folder in private_dirs.private_dirs(binds):
                folder.exchange()
            if size_mb != private_dirs.DEFAULT_MB:
                private_dirs.resize(size_mb)
            root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return View(binds, root, os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
        finally:
            syscalls.enter_namespace(home)
    finally:
        os.close(home)


def fill(new: View, view: View) -> None:
    """Copy what is in the folders of `view` into those of `new`.

    Raises:
        OSError: it does not fit, or is in the midst of a change.
    """
    for source, target in zip(view.folders, new.folders, strict=True):
        if not folder_copy.is_empty(source):
            folder_copy.copy(source, target)


class Aside:
    """What is in the folders of a view, put aside before a cell."""

    def __init__(self, view: View, size_mb: int) -> None:
        """
        Raises:
            OSError: it cannot be copied.
        """
        self._view = view
        self._volumes: list[int] = []
        self._kept: list[int | None] = []
        try:
            for folder in view.folders:
                self._kept.append(None if folder_copy.is_empty(folder) else self._copied(folder, size_mb))
        except OSError:
            self.close()
            raise

    def _copied(self, folder: int, size_mb: int) -> int:
        volume = syscalls.detached_tmpfs(size_mb + 1, policy.PRIVATE_DIR_INODES)
        self._volumes.append(volume)
        folder_copy.copy(folder, volume)
        return volume

    def put_back(self) -> None:
        """
        Raises:
            OSError: not all of it could be; something else changes it.
        """
        for folder, kept in zip(self._view.folders, self._kept, strict=True):
            if kept is None:
                folder_copy.clear(folder)
            else:
                folder_copy.copy(kept, folder)

    def close(self) -> None:
        for volume in self._volumes:
            os.close(volume)
