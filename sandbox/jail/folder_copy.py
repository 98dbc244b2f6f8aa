"""Copies of folders: aside before a cell, back in place after one that is undone, and over to a session's copy.

All of it goes by descriptors of folders and follows no link: what is copied was made by a program. Contents pass inside
the kernel, never through the memory of this process.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEPTH_MOST = 128
_REMOVALS_MOST = 1 << 20


def open_folder(path: str, parent: int | None = None) -> int:
    return os.open(path, _DIR_FLAGS, dir_fd=parent)


def copy(source: int, target: int) -> None:
    """Make the folder `target` the same as `source`: what is there already is changed in place, the rest goes.

    Files keep their inodes where there are any, so that descriptors of them stay right. Mounts of other file systems
    are left alone.

    Raises:
        OSError: it does not fit, is nested too deep, or something else changed it meanwhile.
    """
    work = _Copy()
    try:
        work.folder(source, target, 0)
    finally:
        work.close()


def is_empty(folder: int) -> bool:
    return next(_entries(folder), None) is None


def clear(folder: int, keep: Container[str] = ()) -> None:
    """Remove all that is in a folder but what is named in `keep`.

    Raises:
        OSError: something else fills it meanwhile.
    """
    for name, _ in list(_entries(folder)):
        if name not in keep:
            _remove(folder, name)


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """What is in a folder, without mounts of other file systems."""
    device = os.fstat(folder).st_dev
    for name in os.listdir(folder):
        state = _state(folder, name)
        if state is not None and state.st_dev == device:
            yield name, state


def _state(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _remove(folder: int, name: str) -> None:
    """Remove what has this name, whatever it holds.

    Folders in it are first moved up to `folder`: no depth of nesting then takes more than one descriptor.
    """
    doomed, number = [name], 0
    while doomed:
        name = doomed[-1]
        state = _state(folder, name)
        if state is None:
            doomed.pop()
        elif not stat.S_ISDIR(state.st_mode):
            os.unlink(name, dir_fd=folder)
            doomed.pop()
        else:
            number += 1
            if number > _REMOVALS_MOST:
                raise OSError(errno.EBUSY, "a folder that is being removed is filled")
            doomed += _emptied(folder, name, number)
            if doomed[-1] == name:
                os.rmdir(name, dir_fd=folder)
                doomed.pop()


def _emptied(folder: int, name: str, number: int) -> list[str]:
    """Take out what is in a folder; returns the names in `folder` that its own folders have now."""
    fd, moved = open_folder(name, folder), []
    try:
        for index, (each, state) in enumerate(list(_entries(fd))):
            if stat.S_ISDIR(state.st_mode):
                moved.append(f".removed-{number}-{index}")
                os.rename(each, moved[-1], src_dir_fd=fd, dst_dir_fd=folder)
            else:
                os.unlink(each, dir_fd=fd)
    finally:
        os.close(fd)
    return moved


class _Copy:
    def __init__(self) -> None:
        self._links: dict[int, tuple[int, str]] = {}
        self._written: set[int] = set()

    def folder(self, source: int, target: int, depth: int) -> None:
        if depth > _DEPTH_MOST:
            raise OSError(errno.ELOOP, f"folders are nested more than {_DEPTH_MOST} deep")
        wanted = dict(_entries(source))
        for name, _ in list(_entries(target)):
            if name not in wanted:
                _remove(target, name)
        for name, state in wanted.items():
            self._entry(source, target, name, state, depth)

    def _entry(self, source: int, target: int, name: str, state: os.stat_result, depth: int) -> None:
        there = _state(target, name)
        if there is not None and (
            stat.S_IFMT(there.st_mode) != stat.S_IFMT(state.st_mode) or there.st_ino in self._written
        ):
            # Of another kind, or a second name of a file that was not one before.
            _remove(target, name)
            there = None
        if stat.S_ISDIR(state.st_mode):
            self._subfolder(source, target, name, there is None, state, depth)
        elif stat.S_ISREG(state.st_mode):
            self._file(source, target, name, state, there)
        elif stat.S_ISLNK(state.st_mode):
            _link(source, target, name, there)
        elif there is None:
            os.mknod(name, state.st_mode, dir_fd=target)  # a named pipe, or a socket that nobody listens to
        os.utime(name, ns=(state.st_atime_ns, state.st_mtime_ns), dir_fd=target, follow_symlinks=False)

    def _subfolder(self, source: int, target: int, name: str, new: bool, state: os.stat_result, depth: int) -> None:
        if new:
            os.mkdir(name, 0o700, dir_fd=target)
        fds: list[int] = []
        try:
            fds.append(open_folder(name, source))
            fds.append(open_folder(name, target))
            self.folder(fds[0], fds[1], depth + 1)
            os.fchmod(fds[1], stat.S_IMODE(state.st_mode))
        finally:
            for fd in fds:
                os.close(fd)

    def _file(self, source: int, target: int, name: str, state: os.stat_result, there: os.stat_result | None) -> None:
        first = self._links.get(state.st_ino)
        if first is not None:
            if there is not None:
                _remove(target, name)
            _add_name(first, target, name)
            return
        flags = _WRITE_FLAGS if there is not None else _WRITE_FLAGS | os.O_CREAT | os.O_EXCL
        read = os.open(name, _READ_FLAGS, dir_fd=source)
        try:
            write = os.open(name, flags, 0o600, dir_fd=target)
            try:
                _copy_content(read, write, state.st_size)
                os.fchmod(write, stat.S_IMODE(state.st_mode))
                self._written.add(os.fstat(write).st_ino)
            finally:
                os.close(write)
        finally:
            os.close(read)
        if state.st_nlink > 1:
            self._links[state.st_ino] = (os.dup(target), name)

    def close(self) -> None:
        for fd, _ in self._links.values():
            os.close(fd)


def _add_name(first: tuple[int, str], folder: int, name: str) -> None:
    os.link(first[1], name, src_dir_fd=first[0], dst_dir_fd=folder, follow_symlinks=False)


def _link(source: int, target: int, name: str, there: os.stat_result | None) -> None:
    to = os.readlink(name, dir_fd=source)
    if there is not None:
        if os.readlink(name, dir_fd=target) == to:
            return
        _remove(target, name)
    os.symlink(to, name, dir_fd=target)


def _copy_content(source: int, target: int, size: int) -> None:
    """Only what is stored of a file: one with holes may be far larger than its file system."""
    os.ftruncate(target, 0)
    position = 0
    while position < size:
        try:
            start = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # only a hole is left
        position = os.lseek(source, start, os.SEEK_HOLE)
        os.lseek(source, start, os.SEEK_SET)
        os.lseek(target, start, os.SEEK_SET)
        while start < position:
            sent = os.sendfile(target, source, None, position - start)
            if not sent:
                raise OSError(errno.EBUSY, "a file was cut short while it was copied")
            start += sent
    os.ftruncate(target, size)
