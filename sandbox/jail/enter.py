"""Enter the jail: from the server's view of the machine to a read-only root of its own, in order."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from _socket import AF_INET, SOCK_DGRAM, socket

from . import policy, syscalls
from .steps import perform
from .syscalls import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, clone_mount, mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_READ_ONLY = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
_READ_ONLY_FILES = _READ_ONLY | syscalls.MOUNT_ATTR_NODEV
_DEVICE = _READ_ONLY | syscalls.MOUNT_ATTR_NOEXEC
# The new root is built on a tmpfs that covers /tmp: a place that exists everywhere and need not be writable.
_NEW_ROOT = "/tmp"  # noqa: S108
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


class Sources:
    """Detached copies of the host's mounts that the jail will show, as descriptors by path."""

    def __init__(self, binds: Sequence[str]) -> None:
        self._attributes = dict.fromkeys(binds, _READ_ONLY_FILES) | dict.fromkeys(policy.DEVICES, _DEVICE)
        self._trees: dict[str, int] = {}

    def open_as_root(self) -> None:
        """Open what only root may reach: an interpreter under root's home (mode 0700) is hidden from nobody.

        A root without CAP_SYS_ADMIN is refused here; `open_the_rest` then shows whether nobody can do without.
        """
        for path, attributes in self._attributes.items():
            try:
                self._trees[path] = clone_mount(path, attributes)
            except PermissionError:
                return

    def open_the_rest(self) -> None:
        for path, attributes in self._attributes.items():
            if path not in self._trees:
                self._trees[path] = clone_mount(path, attributes)

    def attach_all(self) -> None:
        for path, tree in self._trees.items():
            attach(tree, _NEW_ROOT + path)


def attach(tree: int, target: str) -> None:
    """Attach a detached mount, and close its descriptor."""
    _create_mount_point(target, tree)
    syscalls.attach_mount(tree, target)
    os.close(tree)


def _create_mount_point(target: str, tree: int) -> None:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def leave_root() -> None:
    """Become nobody, with no groups. Nothing to do for a server that is a normal user already."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(policy.NOBODY_ID, policy.NOBODY_ID, policy.NOBODY_ID)
        os.setresuid(policy.NOBODY_ID, policy.NOBODY_ID, policy.NOBODY_ID)
        # A change of credentials makes a process undumpable, and root the owner of its /proc files: of uid_map too.
        syscalls.set_dumpable(True)


def unshare_namespaces(inner_id: int, flags: int) -> None:
    """Enter new namespaces, in which one's own user and group are called `inner_id`. The pid one takes a fork more."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(flags)
    # One's own id may be mapped without privilege, but a group only after giving up setgroups.
    for file, text in (("setgroups", "deny"), ("uid_map", f"{inner_id} {uid} 1"), ("gid_map", f"{inner_id} {gid} 1")):
        fd = os.open(f"/proc/self/{file}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, text.encode())
        os.close(fd)


def build_root(
    sources: Sources, work_dir_mb: int, namespaces: int, *, for_program: bool = True, hosts: str = ""
) -> None:
    """Build the new root and make it the only one.

    Args:
        namespaces: the flags of those that were entered.
        for_program: make `/proc` read-only and hide parts of it. A zygote maps its slots' users there, and the kernel
            lets a slot mount a proc of its own only where one is fully visible.
        hosts: further lines of `/etc/hosts`.

    Raises:
        StepError: a step failed.
    """
    perform(
        (
            # Mounts inside must not spread to the host, nor later ones of the host to the inside.
            ("private mounts", lambda: mount("", "/", syscalls.MS_REC | syscalls.MS_PRIVATE)),
            # While /proc can be written.
            ("socket buffers", lambda: bound_socket_buffers(namespaces)),
            # Before /tmp is covered, since the interpreter may live there.
            ("open read-only folders", sources.open_the_rest),
            ("new root", _mount_new_root),
            ("private folders", lambda: _mount_private_dirs(work_dir_mb)),
            ("attach read-only folders", sources.attach_all),
            ("system links", _link_system_dirs),
            ("device links", _link_devices),
            ("etc files", lambda: _write_etc(hosts)),
            # Before the old root goes: the kernel allows a new proc only where one is fully visible.
            ("proc", lambda: mount_proc(_NEW_ROOT, for_program=for_program)),
            ("enter new root", _pivot),
            ("read-only root", _make_root_read_only),
            ("hostname", lambda: _set_hostname(namespaces)),
            ("loopback", lambda: raise_loopback(namespaces)),
        )
    )


def _mount_new_root() -> None:
    mount("tmpfs", _NEW_ROOT, MS_NOSUID | MS_NODEV, f"size={policy.ROOT_SIZE},mode=755")


def _mount_private_dirs(size_mb: int) -> None:
    for path, mode in policy.PRIVATE_DIRS:
        os.makedirs(_NEW_ROOT + path, exist_ok=True)
        mount_private_dir(_NEW_ROOT + path, mode, size_mb)


def mount_private_dir(target: str, mode: str, size_mb: int, flags: int = 0) -> None:
    options = f"size={size_mb}m,nr_inodes={policy.PRIVATE_DIR_INODES},mode={mode}"
    mount("tmpfs", target, MS_NOSUID | MS_NODEV | flags, options)


def _link_system_dirs() -> None:
    for path in policy.SYSTEM_DIRS:
        if os.path.islink(path):
            os.symlink(os.readlink(path), _NEW_ROOT + path)


def _link_devices() -> None:
    for path, target in policy.DEVICE_LINKS:
        os.symlink(target, _NEW_ROOT + path)


def _write_etc(hosts: str) -> None:
    os.makedirs(f"{_NEW_ROOT}/etc", exist_ok=True)
    for path, text in policy.ETC_FILES.items():
        with open(_NEW_ROOT + path, "w", encoding="utf-8") as file:
            file.write(text + hosts if path == "/etc/hosts" else text)


def mount_proc(root: str, *, for_program: bool) -> None:
    proc = f"{root}/proc"
    os.makedirs(proc, exist_ok=True)
    read_only = MS_RDONLY if for_program else 0
    mount("proc", proc, read_only | MS_NOSUID | MS_NODEV | MS_NOEXEC, policy.PROC_OPTIONS)
    for name in policy.MASKED_PROC if for_program else ():
        if os.path.exists(f"{proc}/{name}"):
            mount("", f"{proc}/{name}", syscalls.MS_BIND, source=f"{root}/dev/null")


def _pivot() -> None:
    os.chdir(_NEW_ROOT)
    syscalls.pivot_root_here()
    os.chdir("/")


def _make_root_read_only() -> None:
    mount("", "/", syscalls.MS_BIND | syscalls.MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def bound_socket_buffers(namespaces: int) -> None:
    """Bound the buffers of the network, if it is one's own. A kernel that does not let us keeps its own bounds."""
    if not namespaces & policy.NAMESPACE_FLAGS["CLONE_NEWNET"]:
        return
    for name, sizes in policy.SOCKET_BUFFERS:
        try:
            fd = os.open(f"/proc/sys/net/ipv4/{name}", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, sizes.encode())
            os.close(fd)
        except OSError:
            return


def _set_hostname(namespaces: int) -> None:
    if namespaces & policy.NAMESPACE_FLAGS["CLONE_NEWUTS"]:
        syscalls.set_hostname(policy.HOSTNAME)


def raise_loopback(namespaces: int) -> None:
    """Bring the loopback interface up, if the network is one's own."""
    if not namespaces & policy.NAMESPACE_FLAGS["CLONE_NEWNET"]:
        return
    handle = socket(AF_INET, SOCK_DGRAM)
    fcntl.ioctl(handle.fileno(), _SIOCSIFFLAGS, b"lo".ljust(16, b"\0") + _IFF_UP.to_bytes(2, sys.byteorder) + bytes(22))
    handle.close()
