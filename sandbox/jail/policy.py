"""What a program may see and do: data only. `enter`, `program` and `seccomp` carry it out."""

from __future__ import annotations

HOSTNAME = "sandbox"
INNER_ID = 1000
"""User and group of a program, as seen from inside. Not 0: execve by another user than root clears capabilities."""
NOBODY_ID = 65534
"""Whom a server that runs as root becomes before it enters the jail."""

WORK_DIR = "/workspace"
PROGRAM_NAME = "main.py"

# --- what is visible -------------------------------------------------------------------------------------------------

READ_ONLY = ("/usr",)
READ_ONLY_IF_PRESENT = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/java-*-openjdk")
"""Patterns. Java keeps there what it needs to start, and `/usr` only links to it."""
SYSTEM_DIRS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into /usr on most systems: copied as links there, bound where they are folders."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
DEVICE_LINKS = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
)

PRIVATE_DIRS = ((WORK_DIR, "755"), ("/tmp", "1777"), ("/dev/shm", "1777"))  # noqa: S108
"""Each a tmpfs of `work_dir_mb`, gone with the call."""
PRIVATE_DIR_INODES = 65_536
"""Inodes are kernel memory that a tmpfs' size does not count."""
ROOT_SIZE = "1m"

PROC_OPTIONS = "hidepid=2"
"""Hides init: its command line would show where the server is installed."""
MASKED_PROC = (
    *("kcore", "keys", "key-users", "kallsyms", "kmsg", "timer_list", "sched_debug", "latency_stats"),
    *("cmdline", "interrupts"),
)

ETC_FILES = {
    "/etc/passwd": f"sandbox:x:{INNER_ID}:{INNER_ID}::{WORK_DIR}:/bin/sh\n",
    "/etc/group": f"sandbox:x:{INNER_ID}:\n",
    "/etc/hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    # No name server can be reached: without this, looking up a name would wait for one.
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORK_DIR,
    "LANG": "C.UTF-8",
    # A killed program cannot flush: unbuffered output is what makes the partial output of a timeout complete.
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "Agg",
    # One thread per call: the slots are the parallelism, and idle BLAS threads would count as processes.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # pyarrow, which pandas imports where it is installed: its own allocators reserve a gigabyte of what RLIMIT_DATA
    # counts, and start a thread.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

CAP_SYS_CHROOT = 1 << 18
FAMILY_MOST = 64
"""Members that a session and its forks may have at a time: they live in one slot."""

EXTRAS_DIR = ".rollbox"
VALUE_FILE = f"{EXTRAS_DIR}/value"
FIGURE_FILES = tuple(f"{EXTRAS_DIR}/figure-{number}.png" for number in range(1, 17))
"""In the work dir, at the end of a program that was asked for them: they are as much its own words as its output."""

# --- what is counted -------------------------------------------------------------------------------------------------

WATCH_INTERVAL_S = 0.05
IDLE_WATCH_INTERVAL_S = 10.0
"""How often a session is looked at between its cells."""
PENDING_SIGNALS = 1024
"""Signals and timers. Without a limit of its own one program could take those of all, which are counted by user."""
MAX_FETCH_BYTES = 32 * 1024 * 1024
OWN_PROCESSES = 2
"""Launcher and init live in the program's user namespace, where RLIMIT_NPROC counts them too."""

# --- which system calls are refused ----------------------------------------------------------------------------------

DENIED_SYSCALLS = (
    # namespaces and mounts: the way back out, and the largest part of the kernel that an unprivileged user can reach
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr"),
    *("open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "swapon", "swapoff", "quotactl", "quotactl_fd"),
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("move_pages", "migrate_pages"),
    # kernel interfaces with a long history of privilege escalation
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf", "perf_event_open"),
    *("add_key", "request_key", "keyctl", "fanotify_init", "modify_ldt", "personality", "vmsplice"),
    # files by handle: skips every path check
    *("name_to_handle_at", "open_by_handle_at"),
    # the machine
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "acct", "syslog"),
    *("iopl", "ioperm", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"),
    *("vhangup", "nfsservctl", "lookup_dcookie", "uselib", "ustat", "sysfs", "_sysctl"),
    # memory that belongs to no process and to no tmpfs of ours, so that no limit would count it
    *("memfd_create", "memfd_secret", "shmget", "msgget", "semget"),
    # counted for the whole machine: one program could take what its databases need
    "io_setup",
    # the one thing left that an ipc namespace could keep from one call of a slot to the next
    "mq_open",
)
RECENT_SYSCALLS = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "open_tree_attr": 467,
}
"""Numbers, the same on every architecture, of calls that an installed libseccomp may be too old to know by name."""
ABSENT_SYSCALLS = ("clone3", "inotify_init", "inotify_init1")
"""Answered with ENOSYS, after which programs do without. A filter cannot read clone3's flags, and C libraries fall back
to clone, whose it can. The inotify instances of all programs are counted together, and few."""

NAMESPACE_FLAGS = {
    "CLONE_NEWNS": 0x0002_0000,
    "CLONE_NEWCGROUP": 0x0200_0000,
    "CLONE_NEWUTS": 0x0400_0000,
    "CLONE_NEWIPC": 0x0800_0000,
    "CLONE_NEWUSER": 0x1000_0000,
    "CLONE_NEWPID": 0x2000_0000,
    "CLONE_NEWNET": 0x4000_0000,
}
"""What the jail is made of, and what a program may not make again with clone. Time namespaces cannot be made by it."""
ALL_NAMESPACES = sum(NAMESPACE_FLAGS.values())
SLOT_NAMESPACES = sum(NAMESPACE_FLAGS[f"CLONE_NEW{name}"] for name in ("USER", "PID", "NET", "NS", "IPC"))
"""What each slot of a zygote has of its own. The host name and the cgroup view are its zygote's."""
LOWERABLE_NAMESPACES = ("net", "ipc", "uts", "cgroup")
"""Those that an operator may do without. The jail is made of the others."""

SOCKET_FAMILIES = (1, 2, 10, 16)
"""unix, inet, inet6, netlink. The rest is refused: vsock, for one, ignores network namespaces and reaches the host."""
SOCKET_FAMILY_MAX = 16
SESSION_SYSCALLS = ("chroot",)
"""Allowed for sessions: a copy enters its own view of the folders by it. The view is the root of a mount namespace, so
that nothing lies above it."""
PR_SET_DUMPABLE = 4
"""Refused: a process that is not dumpable hides from init, which would not count its memory."""
NETLINK, NETLINK_ROUTE = 16, 0
"""Of netlink only what lists interfaces: other protocols are kernel modules that an unprivileged socket would load."""
INTERNET_FAMILIES, INTERNET_PROTOCOL_MAX = (2, 10), 17
"""TCP, UDP, ping. Higher ones (SCTP, DCCP, MPTCP, …) are modules too; libraries fall back from "not supported"."""
BUFFER_SIZE_OPTIONS = (7, 8)
"""SO_SNDBUF and SO_RCVBUF of SOL_SOCKET, which are only advice: taken, and not followed. No limit counts buffers."""
SOL_SOCKET = 1
INIT_PID = 1
"""prlimit asks for nothing but the same user, which init is too: a program could cripple the next call's init."""
SOCKET_BUFFERS = (("tcp_rmem", "4096 87380 262144"), ("tcp_wmem", "4096 16384 262144"))
"""Bytes at least, at first, at most, in files of /proc/sys/net/ipv4: TCP buffers grow up to megabytes by default."""
TIOCSTI = 0x5412
"""The ioctl that types into a terminal."""
