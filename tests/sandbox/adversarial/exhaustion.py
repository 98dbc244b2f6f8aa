"""Attacks that take all there is: processes, memory, disk, descriptors, kernel memory, output, time."""

from __future__ import annotations

from collections.abc import Callable

from rollbox.schemas.run import RunResult

from .attack import ERRNO_OF, Attack, all_refused, ended, printed


def _at_most(most: int, unit: str) -> Callable[[RunResult], None]:
    def check(result: RunResult) -> None:
        assert result.status == "ok", result
        got = int(result.stdout.split()[-1])
        assert 0 < got <= most, f"{got} {unit}"

    return check


def _flooded(result: RunResult) -> None:
    assert result.status == "output_limit", result
    assert (
        len(result.stdout) + len(result.stderr) < 700_000
    )  # 64 KiB of each are kept, an invalid byte is shown as four
    assert result.stdout_truncated or result.stderr_truncated


_FILL = """
import os
made, folder = 0, os.environ.get("FOLDER", "/workspace")
try:
    while True:
        with open(f"{folder}/f{made}", "wb", buffering=0) as file:
            made += file.write(bytes(1 << 20)) == 1 << 20
            if file.tell() < 1 << 20:
                break
except OSError as error:
    print(error.strerror)
print(made)
"""

ATTACKS = (
    Attack(
        "fork bomb",
        "process limit, counted per jail; the end of PID 1's namespace",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        ended("timeout"),
        limits={"wall_s": 1, "processes": 32},
    ),
    Attack(
        "fork bomb of sessions that ignore every signal",
        "SIGKILL to all of the namespace in one sweep",
        """
import os, signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
""",
        ended("timeout"),
        limits={"wall_s": 1, "processes": 32},
    ),
    Attack(
        "thread bomb",
        "process limit, which counts threads",
        """
import threading, time
made = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        made += 1
except RuntimeError:
    print(made)
""",
        _at_most(64, "threads"),
    ),
    Attack(
        "memory bomb in one process",
        "data limit of each process",
        "held = []\nwhile True: held.append(bytearray(8 << 20))",
        ended("memory", stderr="MemoryError"),
        limits={"memory_mb": 256},
    ),
    Attack(
        "memory bomb in 50 processes",
        "the watch over the whole tree",
        """
import os, time
for _ in range(50):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20) * 20)
        time.sleep(30)
time.sleep(30)
""",
        ended("memory"),
        limits={"memory_mb": 256, "wall_s": 20},
    ),
    Attack(
        "memory bomb in shared anonymous memory",
        "the watch over the whole tree",
        """
import mmap, time
held = mmap.mmap(-1, 512 << 20)
for at in range(0, 512 << 20, 4096): held[at] = 1
time.sleep(30)
""",
        ended("memory"),
        limits={"memory_mb": 128, "wall_s": 20},
    ),
    Attack(
        "memory bomb in the private folders",
        "the watch counts what the folders hold",
        """
import time
for folder in ("/workspace", "/tmp", "/dev/shm"):
    with open(folder + "/big", "wb") as file:
        for _ in range(60): file.write(bytes(1 << 20))
time.sleep(30)
""",
        ended("memory"),
        limits={"memory_mb": 128, "wall_s": 20},
    ),
    Attack(
        "disk fill",
        "each private folder is a tmpfs of `work_dir_mb`",
        _FILL,
        _at_most(64, "MiB"),
    ),
    Attack(
        "disk fill of /dev/shm",
        "each private folder is a tmpfs of `work_dir_mb`",
        _FILL,
        _at_most(64, "MiB"),
        fields={"env": {"FOLDER": "/dev/shm"}},
    ),
    Attack(
        "inode fill",
        "65,536 inodes for each private folder",
        "import os\nfor n in range(100_000): os.mknod(str(n))",
        ended("error", stderr="No space left on device"),
        limits={"wall_s": 60},
    ),
    Attack(
        "descriptor exhaustion",
        "descriptor limit of each process",
        """
import os
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    print(len(held))
""",
        _at_most(256, "descriptors"),
    ),
    Attack(
        "descriptors in flight",
        "programs get half of the server's descriptors at most, so that init can always send its own",
        """
import array, os, socket
fd, pairs = os.open("/dev/null", os.O_RDONLY), []
sent = 0
try:
    while True:
        ends = socket.socketpair()
        pairs.append(ends)
        ends[0].setblocking(False)
        try:
            while True:
                ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 250))])
                sent += 250
        except BlockingIOError:
            pass
except OSError as error:
    print(sent)
""",
        _at_most(100_000, "descriptors in flight"),
        limits={"open_files": 65_536, "wall_s": 30},
    ),
    Attack(
        "output flood on both streams",
        "the server drains, counts, keeps the ends, and ends the run at `output_kill_mb`",
        "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'y' * 65536)",
        _flooded,
        limits={"output_kill_mb": 8, "wall_s": 60},
    ),
    Attack(
        "output flood of invalid bytes",
        "decoded fast, large outputs away from the event loop",
        "import os\nwhile True: os.write(1, b'\\xff' * 65536)",
        _flooded,
        limits={"output_kill_mb": 8, "wall_s": 60},
    ),
    Attack(
        "output flood by an army of children",
        "the server drains, counts, keeps the ends, and ends the run at `output_kill_mb`",
        "import os\nfor _ in range(4): os.fork()\nwhile True: os.write(2, b'z' * 4096)",
        _flooded,
        limits={"output_kill_mb": 8, "wall_s": 60},
    ),
    Attack(
        "sparse file",
        "file size limit",
        ERRNO_OF
        + """
fd = os.open("big", os.O_RDWR | os.O_CREAT)
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
print(json.dumps({
    "truncate": error_of(lambda: os.truncate("big", 1 << 40)),
    "seek": error_of(lambda: os.pwrite(fd, b"x", 1 << 40)),
    "allocate": error_of(lambda: os.posix_fallocate(fd, 0, 1 << 40)),
}))
""",
        all_refused("EFBIG"),
        fields={"fetch_files": ["big"]},
    ),
    Attack(
        "sparse file to be fetched",
        "32 MiB of files are sent back at most",
        "open('big', 'wb').truncate(60 << 20); print('made')",
        lambda result: printed("made")(result) or _not_sent(result),
        fields={"fetch_files": ["big"]},
    ),
    Attack(
        "asynchronous I/O contexts",
        "seccomp: they are counted for the whole machine",
        ERRNO_OF + "print(json.dumps({'io_setup': errno_of('syscall', 206, 60_000, ctypes.byref(ctypes.c_ulong()))}))",
        all_refused("EPERM"),
    ),
    Attack(
        "inotify instances",
        "seccomp: they are counted for all programs together",
        ERRNO_OF + "print(json.dumps({'old': errno_of('inotify_init'), 'new': errno_of('inotify_init1', 0)}))",
        all_refused("ENOSYS"),
    ),
    Attack(
        "pending signals and timers",
        "a limit of their own: they are counted for all programs together",
        ERRNO_OF
        + """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
queued = 0
while libc.sigqueue(os.getpid(), 40, 0) == 0 and queued < 100_000: queued += 1
timer = ctypes.c_void_p()
while libc.timer_create(1, None, ctypes.byref(timer)) == 0 and queued < 100_000: queued += 1
print(queued)
""",
        _at_most(1024, "signals and timers"),
    ),
    Attack(
        "socket buffers",
        "descriptor limit; sizes of buffers cannot be raised",
        """
import socket
held, taken = [], 0
def fill(end):
    global taken
    for option in (7, 8): end.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
    end.setblocking(False)
    try:
        while True: taken += end.send(bytes(65536))
    except BlockingIOError:
        pass
try:
    while True:
        ends = socket.socketpair()
        held.append(ends)
        for end in ends: fill(end)
except OSError:
    print(taken >> 20)
""",
        _at_most(96, "MiB"),
    ),
    Attack(
        "buffers of TCP connections",
        "descriptor limit; buffers of the jail's network stay small",
        """
import socket
listener, held, taken = socket.create_server(("127.0.0.1", 0), backlog=500), [], 0
try:
    while True:
        near = socket.create_connection(listener.getsockname())
        held.append((near, listener.accept()[0]))
        for end in held[-1]:
            end.setblocking(False)
            try:
                while True: taken += end.send(bytes(1 << 20))
            except BlockingIOError:
                pass
except OSError:
    print(taken >> 20)
""",
        _at_most(400, "MiB"),
        limits={"wall_s": 60},
    ),
    Attack(
        "pipe buffers",
        "descriptor limit; the kernel's own bound for each user",
        """
import fcntl, os
held, taken = [], 0
try:
    while True:
        read, write = os.pipe()
        held.append((read, write))
        try: fcntl.fcntl(write, 1031, 1 << 20)
        except OSError: pass
        os.set_blocking(write, False)
        try:
            while True: taken += os.write(write, bytes(65536))
        except BlockingIOError:
            pass
except OSError:
    print(taken >> 20)
""",
        _at_most(130, "MiB"),
    ),
    Attack(
        "huge integer",
        "CPU and wall limits; data limit",
        "x = 3 ** (3 ** 20)\nwhile True: x = x * x",
        ended("timeout", "memory"),
        limits={"wall_s": 1.5},
    ),
    Attack(
        "integer too long to print",
        "the interpreter's own limit of 4300 digits",
        "print(10 ** 5000)",
        ended("error", stderr="ValueError: Exceeds the limit"),
    ),
    Attack(
        "regular expression that backtracks for ever",
        "wall limit, held by init and not by the interpreter",
        "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
        ended("timeout"),
        limits={"wall_s": 1},
    ),
    Attack(
        "program that is slow to parse",
        "the server parses no program with thousands of dots",
        "import numpy\nimport a" + ".a" * 32_000,
        ended("error", "memory", stderr="Error"),
        limits={"wall_s": 30},
    ),
    Attack(
        "program nested beyond the parser",
        "the server takes a parser's failure for an answer",
        "import numpy\nx = " + "-" * 60_000 + "1",
        ended("error", "memory", stderr="Error"),
    ),
)


def _not_sent(result: RunResult) -> None:
    assert result.files == {}
    assert "too large to send back: big (62914560 bytes)" in str(result.hint)
