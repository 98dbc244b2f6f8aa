"""Attacks by processes: to outlive the call, to harm or read those that supervise it, to end in no good way."""

from __future__ import annotations

from collections.abc import Callable

from rollbox.schemas.run import RunResult

from .attack import ERRNO_OF, Attack, all_refused, ended, killed_by, printed


def _timed_out_with(text: str) -> Callable[[RunResult], None]:
    def check(result: RunResult) -> None:
        assert (result.status, result.stdout) == ("timeout", text), result

    return check


ATTACKS = (
    Attack(
        "double-forked daemon",
        "everything in the pid namespace ends with the call",
        """
import os, signal, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
        os.write(write, b"x")
        os.execvp(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", sys.argv[1]])
    os._exit(0)
os.read(read, 1)
print("left")
""",
        printed("left"),
    ),
    Attack(
        "daemon that keeps the output open",
        "the end of the program ends the call, not the end of its output",
        "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(300)\nprint('left')",
        printed("left"),
    ),
    Attack(
        "ignoring SIGTERM and all the rest",
        "SIGKILL",
        """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
print("deaf")
while True: time.sleep(1)
""",
        _timed_out_with("deaf\n"),
        limits={"wall_s": 1},
    ),
    Attack(
        "stopping oneself",
        "SIGKILL, which a stopped process dies of too",
        """
import os, signal
print('stopped')
if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)
os.kill(os.getpid(), 19)
""",
        _timed_out_with("stopped\n"),
        limits={"wall_s": 1},
    ),
    Attack(
        "closing descriptors 0 to 2",
        "init waits for the process, not for its pipes",
        "import os\nfor fd in (0, 1, 2): os.close(fd)\nos._exit(4)",
        lambda result: _exited(result, 4),
    ),
    Attack(
        "closing every descriptor and sleeping",
        "the clock of init",
        "import os, time\nos.closerange(0, 4096)\ntime.sleep(300)",
        _timed_out_with(""),
        limits={"wall_s": 1},
    ),
    Attack(
        "exit handler that never returns",
        "wall limit",
        "import atexit, time\natexit.register(time.sleep, 300)\nprint('done')",
        _timed_out_with("done\n"),
        limits={"wall_s": 1},
    ),
    Attack(
        "object whose `__del__` never returns",
        "wall limit",
        "import time\nclass Last:\n    def __del__(self, sleep=time.sleep): sleep(300)\nlast = Last()\nprint('done')",
        _timed_out_with("done\n"),
        limits={"wall_s": 1},
    ),
    Attack(
        "thread that never ends",
        "wall limit",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(300,)).start()\nprint('done')",
        _timed_out_with("done\n"),
        limits={"wall_s": 1},
    ),
    Attack(
        "signals to PID 1",
        "the kernel keeps them from a PID 1 without handlers",
        """
import os, signal
for number in range(1, 65):
    for _ in range(3):
        try: os.kill(1, number)
        except OSError: pass
try: signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGKILL)
except OSError: pass
print("still here")
""",
        printed("still here"),
    ),
    Attack(
        "killing everything in sight",
        "nothing is in sight but one's own",
        """
import os, signal, subprocess
other = subprocess.Popen(['sleep', '60'])
os.kill(-1, signal.SIGKILL)
print(other.wait())
""",
        printed("-9"),
    ),
    Attack(
        "limits of PID 1",
        "seccomp: prlimit of PID 1, also with bits set that the kernel ignores",
        ERRNO_OF
        + """
import resource
pair = (ctypes.c_ulong * 2)(1, 1)
answers = {name: error_of(lambda: resource.prlimit(1, getattr(resource, name), (1, 1)))
           for name in ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_DATA", "RLIMIT_STACK")}
for pid in (1, 1 << 32 | 1, -1 << 32 | 1):
    answers[f"raw {pid}"] = errno_of("syscall", ctypes.c_long(302), ctypes.c_long(pid), 7, pair, None)
print(json.dumps(answers))
""",
        all_refused("EPERM"),
    ),
    Attack(
        "priority and cores of PID 1",
        "the kernel: PID 1 has capabilities that a program has not",
        ERRNO_OF
        + """
print(json.dumps({
    "cores": error_of(lambda: os.sched_setaffinity(1, {min(os.sched_getaffinity(0))})),
    "scheduler": error_of(lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))),
    "priority": error_of(lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)),
    "disk priority": errno_of("syscall", 251, 1, 1, 3 << 13),
}))
""",
        all_refused("EPERM", "EACCES"),
    ),
    Attack(
        "priority of all processes of the user",
        "they end with the run; PID 1 cannot be changed",
        """
import os
try: os.setpriority(os.PRIO_USER, 0, 19)
except OSError: pass
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print('set')
""",
        printed("set"),
    ),
    Attack(
        "ptrace and memory of PID 1",
        "an undumpable PID 1 that is hidden in /proc; seccomp",
        ERRNO_OF
        + """
part = (ctypes.c_ulong * 2)(0, 8)
print(json.dumps({
    "attach": errno_of("ptrace", 16, 1, 0, 0), "seize": errno_of("ptrace", 0x4206, 1, 0, 0),
    "traceme": errno_of("ptrace", 0, 0, 0, 0),
    "read": errno_of("process_vm_readv", 1, part, 1, part, 1, 0),
    "write": errno_of("process_vm_writev", 1, part, 1, part, 1, 0),
    **{name: error_of(lambda: open("/proc/1/" + name, "rb").read(1))
       for name in ("mem", "maps", "environ", "cmdline", "auxv", "stack", "syscall", "smaps", "task/1/mem")},
    **{name: error_of(lambda: os.listdir("/proc/1/" + name))
       for name in ("fd", "root", "cwd", "map_files", "task", "ns")},
    "take descriptor": errno_of("syscall", 438, os.pidfd_open(1), 1, 0),
    "join namespace": errno_of("setns", os.pidfd_open(1), 0x20000000),
}))
""",
        all_refused("EPERM", "EACCES", "ENOENT"),
    ),
    Attack(
        "seeing other processes",
        "a pid namespace of each slot",
        "import os\nprint(sum(name.isdigit() for name in os.listdir('/proc')), os.getppid() in (0, 1))",
        printed("1 True"),
    ),
    Attack(
        "hundreds of orphans",
        "PID 1 reaps",
        """
import os, time
made = 0
while made < 300:
    try: pid = os.fork()
    except BlockingIOError: time.sleep(0.02); continue
    if pid == 0:
        try: os.fork()
        finally: os._exit(0)
    os.waitpid(pid, 0)
    made += 1
print("ok")
""",
        printed("ok"),
        limits={"processes": 16, "wall_s": 30},
    ),
    Attack(
        "native crash through ctypes",
        "a process of its own: a crash is a result",
        "import ctypes; ctypes.string_at(0)",
        killed_by(11),
    ),
    Attack(
        "illegal instruction",
        "a process of its own: a crash is a result",
        "import ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=7); page.write(b'\\x0f\\x0b')\n"
        "ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()",
        killed_by(4),
    ),
    Attack(
        "stack overflow",
        "a process of its own: a crash is a result",
        "import sys\nsys.setrecursionlimit(10**8)\nheld = []\nfor _ in range(10**6): held = [held]\nrepr(held)",
        killed_by(11),
    ),
    Attack(
        "recursion without end",
        "the interpreter's own limit",
        "def f(): f()\nf()",
        ended("error", stderr="RecursionError"),
    ),
    Attack(
        "interpreter taken apart",
        "what ends a program was put aside before it began",
        """
import builtins, gc, os, sys
os._exit = sys.exit = lambda *_: None
for name in list(sys.modules): del sys.modules[name]
vars(builtins).clear()
""",
        lambda result: _ended_somehow(result),
        limits={"wall_s": 5},
    ),
)


def _exited(result: RunResult, code: int) -> None:
    assert (result.status, result.exit_code, result.stdout) == ("error", code, ""), result


def _ended_somehow(result: RunResult) -> None:
    assert result.status in ("ok", "error"), result
