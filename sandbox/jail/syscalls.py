"""The system calls that Python 3.11 does not offer. Each raises OSError with the call and its object in the text."""

from __future__ import annotations

import ctypes
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
_libc_holding_the_lock = ctypes.PyDLL(None)

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 0x1000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8

_MNT_DETACH = 2
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
# The same on every architecture: these calls came after the numbers were unified.
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_RESTRICT = 444, 446
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 1, 1, 6
_CLONE_PARENT, _CLONE_CHILD_SETTID, _CLONE_CHILD_CLEARTID, _SIGCHLD = 0x8000, 0x0100_0000, 0x0020_0000, 17

_LANDLOCK_SCOPE_ABSTRACT_SOCKETS, _LANDLOCK_SCOPE_SIGNALS = 1, 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_GET_TID_ADDRESS, _SECCOMP_MODE_FILTER = 38, 40, 2
_CAPABILITY_VERSION_3 = 0x2008_0522
_EINVAL = 22
_F_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW, _SEAL_WRITE = 1033, 2, 4, 8


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def mount(kind: str, target: str, flags: int, options: str = "", source: str = "none") -> None:
    data = options.encode() or None
    _checked(
        _libc.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data),
        f"mount {target}",
    )


def pivot_root_here() -> None:
    """Make the current directory the root, and let go of the old one, which is stacked on the same place."""
    _checked(_libc.pivot_root(b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")


def unmount(target: str) -> None:
    """Take the topmost mount at `target` out of sight; it ends with its last user."""
    _checked(_libc.umount2(target.encode(), _MNT_DETACH), f"umount {target}")


def clone_mount(path: str, attributes: int) -> int:
    """A descriptor of a detached copy of the mounts at and under `path`, with `attributes` set on all of them."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    tree = _checked(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, path.encode(), flags), f"open_tree {path}")
    attr = _MountAttr(attr_set=attributes, propagation=MS_PRIVATE)
    where = (tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE)
    result = _libc.syscall(_SYS_MOUNT_SETATTR, *where, ctypes.byref(attr), ctypes.c_size_t(ctypes.sizeof(attr)))
    _checked(result, f"mount_setattr {path}")
    return tree


def attach_mount(tree: int, target: str) -> None:
    where = (_AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    _checked(_libc.syscall(_SYS_MOVE_MOUNT, tree, b"", *where), f"move_mount {target}")


def enter_namespace(fd: int) -> None:
    _checked(_libc.setns(fd, 0), "setns")


def detached_tmpfs(size_mb: int, inodes: int) -> int:
    """A descriptor of the root folder of a new tmpfs that is attached nowhere, and ends with its last descriptor."""
    context = _checked(_libc.syscall(_SYS_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC), "fsopen")
    try:
        for key, value in ((b"size", f"{size_mb}m"), (b"nr_inodes", str(inodes)), (b"mode", "700")):
            where = (context, _FSCONFIG_SET_STRING, key, value.encode(), 0)
            _checked(_libc.syscall(_SYS_FSCONFIG, *where), "fsconfig")
        _checked(_libc.syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), "fsconfig create")
        path = _checked(_libc.syscall(_SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID), "fsmount")
    finally:
        os.close(context)
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path)
    finally:
        os.close(path)


def sealed_file(content: bytes) -> int:
    """A descriptor that reads `content` and that nobody can write: a program could else store things in its stdin."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    while content:
        content = content[os.write(fd, content) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_WRITE)
    return fd


def set_hostname(name: str) -> None:
    _checked(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def set_parent_death_signal(number: int) -> None:
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl PDEATHSIG")


def set_dumpable(dumpable: bool) -> None:
    _checked(_libc.prctl(_PR_SET_DUMPABLE, int(dumpable), 0, 0, 0), "prctl DUMPABLE")


def set_no_new_privileges() -> None:
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")


def drop_capabilities() -> None:
    """Empty all capability sets, the bounding set first: dropping from it needs CAP_SETPCAP."""
    drop_bounding_set()
    clear_capabilities()


def drop_bounding_set() -> None:
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() == _EINVAL:  # past the last capability of this kernel
                break
            _checked(-1, "prctl CAPBSET_DROP")


def clear_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def load_seccomp_filter(instructions: bytes) -> None:
    program = _FilterProgram(len(instructions) // 8, instructions)
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "prctl SECCOMP")


def prepared_lock(instructions: bytes, kept_capabilities: int = 0) -> Callable[[], None]:
    """`clear_capabilities` and `load_seccomp_filter` as one call whose arguments are made beforehand.

    Without instructions there is no filter to load.

    Args:
        kept_capabilities: a mask of those that stay; `execve` then drops them.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    kept = (ctypes.c_uint32 * 6)(kept_capabilities, kept_capabilities)
    program = _FilterProgram(len(instructions) // 8, instructions)
    reference = ctypes.byref(program)
    capset, prctl = _libc.capset, _libc.prctl

    def lock() -> None:
        _checked(capset(header, kept), "capset")
        if instructions:
            _checked(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, reference, 0, 0), "prctl SECCOMP")

    return lock


fork: Callable[[], int] = _libc_holding_the_lock.fork
"""The C library's fork, without what the interpreter does around its own for other threads and for hooks.

For a process with one thread, where all of that is without effect but the reseeding of `random`. It writes to a fifth
of the pages that `os.fork` does, each of which is copied. Returns -1 for a failure.
"""


class _LandlockRules(ctypes.Structure):
    _fields_ = (
        ("handled_files", ctypes.c_uint64),
        ("handled_network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def fence() -> bool:
    """Keep this process, and those that it forks, from all others that are not forked from it after this.

    It cannot signal them, nor look into them by `/proc`, nor connect to their abstract sockets. False where the kernel
    cannot do that: it needs Landlock, and Linux 6.12; and no more than 16 times in a row.
    """
    rules = _LandlockRules(scoped=_LANDLOCK_SCOPE_ABSTRACT_SOCKETS | _LANDLOCK_SCOPE_SIGNALS)
    fd = _libc.syscall(_SYS_LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    if fd < 0:
        return False
    try:
        return bool(_libc.syscall(_SYS_LANDLOCK_RESTRICT, fd, 0) == 0)
    finally:
        os.close(fd)


def prepared_sibling_fork() -> Callable[[], int]:
    """A fork, as `fork`, whose child is a child of this process's parent: to reap it is the parent's business.

    The system call itself, because the C library's wrapper starts the child in a function of its own. Like its fork it
    has the kernel write the child's thread id to where the library keeps it.

    Raises:
        OSError: on an architecture whose number of the call is not known here.
    """
    number = _SYS_CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(f"clone: its number on {os.uname().machine} is not known")
    address = ctypes.c_ulong()
    known = _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) == 0
    flags = _CLONE_PARENT | _SIGCHLD | ((_CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID) if known else 0)
    # Architectures differ in the order of the last two, of which one is not read.
    arguments = [ctypes.c_ulong(each) for each in (number, flags, 0, 0, address.value, address.value)]
    call = _libc_holding_the_lock.syscall
    return lambda: int(call(*arguments))
