"""Attacks on the kernel: calls that lead out of the jail, or to the code in which such ways are found."""

from __future__ import annotations

from .attack import ERRNO_OF, Attack, all_refused, killed_by


def _calls(name: str, stopped_by: str, answers: str, *errors: str) -> Attack:
    return Attack(
        name, stopped_by, f"{ERRNO_OF}\nprint(json.dumps({{{answers}}}))", all_refused(*(errors or ("EPERM",)))
    )


_SECCOMP = "seccomp"

ATTACKS = (
    _calls(
        "new namespaces",
        "seccomp, also of clone's flags; clone3 is absent",
        """
        **{hex(flag): errno_of("unshare", flag) for flag in (
            0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)},
        **{"clone " + hex(flag): errno_of("syscall", 56, flag | 17, 0, 0, 0, 0)
           for flag in (0x20000, 0x10000000, 0x40000000)},
        "setns": errno_of("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0),
        "clone3": "EPERM" if errno_of("syscall", 435, (ctypes.c_ulong * 11)(0x10000000), 88) == "ENOSYS" else "done",
        """,
    ),
    _calls(
        "mounts",
        _SECCOMP,
        """
        "mount": errno_of("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "bind": errno_of("mount", b"/usr", b"/tmp", None, 4096, None),
        "remount": errno_of("mount", b"none", b"/usr", None, 32 | 4096, None),
        "umount": errno_of("umount2", b"/workspace", 2), "umount proc": errno_of("umount2", b"/proc/kallsyms", 2),
        "pivot_root": errno_of("syscall", 155, b".", b"."), "chroot": errno_of("chroot", b"/tmp"),
        "open_tree": errno_of("syscall", 428, -100, b"/", 1),
        "move_mount": errno_of("syscall", 429, 3, b"", -100, b"/tmp", 4),
        "fsopen": errno_of("syscall", 430, b"tmpfs", 0), "fspick": errno_of("syscall", 433, -100, b"/", 0),
        "fsconfig": errno_of("syscall", 431, 3, 0, 0, 0, 0), "fsmount": errno_of("syscall", 432, 3, 0, 0),
        "mount_setattr": errno_of("syscall", 442, -100, b"/", 0, 0, 0),
        "open_tree_attr": errno_of("syscall", 467, -100, b"/", 0, 0, 0),
        """,
    ),
    _calls(
        "keyrings",
        _SECCOMP,
        """
        "add_key": errno_of("syscall", 248, b"user", b"x", b"y", 1, -3),
        "request_key": errno_of("syscall", 249, b"user", b"x", 0, 0),
        "keyctl": errno_of("syscall", 250, 0, -3, 0),
        """,
    ),
    _calls(
        "bpf, perf, userfaultfd",
        _SECCOMP,
        """
        "bpf": errno_of("syscall", 321, 0, 0, 0), "perf_event_open": errno_of("syscall", 298, 0, 0, -1, -1, 0),
        "userfaultfd": errno_of("syscall", 323, 0), "userfaultfd of the user": errno_of("syscall", 323, 1),
        "kcmp": errno_of("syscall", 312, 1, 1, 0, 0, 0), "fanotify": errno_of("syscall", 300, 0, 0),
        "vmsplice": errno_of("syscall", 278, 1, 0, 0, 0), "modify_ldt": errno_of("syscall", 154, 0, 0, 0),
        "move_pages": errno_of("syscall", 279, 1, 0, 0, 0, 0, 0),
        """,
    ),
    _calls(
        "io_uring",
        _SECCOMP,
        """
        "setup": errno_of("syscall", 425, 8, (ctypes.c_char * 120)()),
        "enter": errno_of("syscall", 426, 0, 0, 0, 0, 0),
        "register": errno_of("syscall", 427, 0, 0, 0, 0),
        """,
    ),
    _calls(
        "memory that belongs to no process",
        "seccomp",
        """
        "memfd": errno_of("memfd_create", b"x", 0), "secret memfd": errno_of("syscall", 447, 0),
        "shared segment": errno_of("shmget", 0, 4096, 0o1777), "queue": errno_of("msgget", 0, 0o1777),
        "semaphores": errno_of("semget", 0, 1, 0o1777),
        "POSIX queue": errno_of("syscall", 240, b"x", os.O_CREAT | os.O_RDWR, 0o600, 0),
        """,
    ),
    _calls(
        "files by handle",
        _SECCOMP,
        """
        "name": errno_of("syscall", 303, -100, b"/", 0, 0, 0), "open": errno_of("syscall", 304, -100, 0, 0),
        """,
    ),
    _calls(
        "modules, kexec, reboot, clocks, quotas",
        _SECCOMP,
        """
        "init_module": errno_of("syscall", 175, 0, 0, b""), "finit_module": errno_of("syscall", 313, 0, b"", 0),
        "delete_module": errno_of("syscall", 176, b"x", 0), "kexec_load": errno_of("syscall", 246, 0, 0, 0, 0),
        "kexec_file_load": errno_of("syscall", 320, 0, 0, 0, 0, 0),
        "reboot": errno_of("syscall", 169, 0xfee1dead, 672274793, 0x1234567, 0),
        "settimeofday": errno_of("syscall", 164, 0, 0), "clock_settime": errno_of("syscall", 227, 0,
        (ctypes.c_long * 2)()),
        "swapon": errno_of("swapon", b"/x", 0), "acct": errno_of("acct", b"/x"),
        "quotactl": errno_of("syscall", 179, 0, 0, 0, 0),
        "syslog": errno_of("syscall", 103, 3, 0, 0), "sethostname": errno_of("sethostname", b"x", 1),
        "iopl": errno_of("syscall", 172, 3),
        "ioperm": errno_of("syscall", 173, 0, 1, 1), "personality": errno_of("personality", 0x0040000),
        """,
    ),
    _calls(
        "gaining privileges",
        "no capabilities and none to gain, no_new_privs, one user and group",
        """
        "setuid": errno_of("setuid", 0), "setresuid": errno_of("setresuid", 0, 0, 0), "setgid": errno_of("setgid", 0),
        "setgroups": errno_of("setgroups", 1, (ctypes.c_int * 1)(0)), "capset": errno_of("syscall", 126,
        (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)(1, 1, 1, 1, 1, 1)),
        "keep capabilities": errno_of("setuid", 0) if libc.prctl(8, 1, 0, 0, 0) == 0 else "EPERM",
        "ambient": errno_of("prctl", 47, 2, 21, 0, 0), "nice": error_of(lambda: os.nice(-5)),
        "real time": error_of(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
        """,
        "EPERM",
        "EINVAL",
    ),
    _calls(
        "arguments with bits that the kernel ignores",
        "seccomp compares what the kernel reads",
        """
        "type into a terminal": errno_of("syscall", 16, 0, ctypes.c_ulong(1 << 32 | 0x5412), b"x"),
        "clone": errno_of("syscall", 56, ctypes.c_ulong(1 << 40 | 0x10000000 | 17), 0, 0, 0, 0),
        "socket family": errno_of("syscall", 41, ctypes.c_ulong(1 << 32 | 40), 1, 0),
        "netlink": errno_of("syscall", 41, ctypes.c_ulong(1 << 32 | 16), 3, 12),
        """,
    ),
    Attack(
        "call tables of other architectures",
        "seccomp ends the program",
        """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (getpid of i386); int 0x80; ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
""",
        killed_by(11, 31),
    ),
    Attack(
        "x32 calls",
        "seccomp ends the program",
        "import ctypes\nprint(ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39)))",
        killed_by(31),
    ),
)
