"""A ready child: does ahead what every program needs, waits for its job, and becomes the program."""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import resource
import signal
import sys
import time
from _socket import AF_UNIX, MSG_WAITALL, SOCK_STREAM, socket

from . import finish, policy, private_dirs, syscalls, work_dir
from .program import set_limits
from .steps import StepError, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import NoReturn

    from .frames import SlotJob

_JOB_FD, _START_FD = 3, 4
_LENGTH_BYTES = 8


class ArgumentArea:
    """The command line of this process as the kernel shows it, in memory that can be written over."""

    def __init__(self, start: int, size: int) -> None:
        self._start = start
        self._size = size

    @classmethod
    def own(cls) -> ArgumentArea:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: the 48th and 49th of all
        return cls(start, end - start)

    def write(self, command: list[str]) -> None:
        text = b"\0".join(os.fsencode(argument) for argument in command)[: self._size - 1]
        ctypes.memmove(self._start, text.ljust(self._size, b"\0"), self._size)


def become(job_fd: int, start: int, stdout: int, stderr: int, seccomp: bytes, arguments: ArgumentArea) -> Program:
    """Wait for a job, and lock this process up for it. Whatever fails is told to init, and ends this process."""
    try:
        _prepare(job_fd, start, stdout, stderr)
        job: SlotJob = marshal.loads(_received_job())  # noqa: S302 - from the server
        _lock_up(job, seccomp)
        program = Program(job, arguments)
        _tell_start(job)
        if job["fresh_interpreter"] or program.is_shadowed:
            program.execute()
        return program
    except StepError as error:
        os.write(_START_FD, marshal.dumps({"failure": error.as_failure()}))
    except BaseException as error:  # noqa: BLE001 - never back into init's code, whatever went wrong
        failure = StepError("ready child", error if isinstance(error, Exception) else RuntimeError(repr(error)))
        os.write(_START_FD, marshal.dumps({"failure": failure.as_failure()}))
    os._exit(1)


def _prepare(job_fd: int, start: int, stdout: int, stderr: int) -> None:
    # A session of its own: nothing that the program does to its process group reaches init.
    os.setsid()
    syscalls.set_dumpable(True)
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    _move((job_fd, _JOB_FD), (start, _START_FD))
    os.closerange(_START_FD + 1, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(0o022)
    os.chdir(policy.WORK_DIR)
    _reseed()
    gc.enable()


def _move(*moves: tuple[int, int]) -> None:
    """Give descriptors their places, by way of high ones: a place may be taken by another of them."""
    held = [(os.dup(source), target) for source, target in moves]
    for source, target in held:
        os.dup2(source, target, inheritable=False)


def _reseed() -> None:
    """`random` reseeds itself after a fork; the others would give all programs the same numbers."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    sympy_random = sys.modules.get("sympy.core.random")
    if sympy_random is not None:
        sympy_random.rng.seed()


def _received_job() -> bytes:
    channel = socket(AF_UNIX, SOCK_STREAM, 0, _JOB_FD)
    data = receive_block(channel)
    channel.close()
    return data


def receive_block(channel: socket) -> bytes:
    """A block of bytes that its length precedes. Reads nothing of what comes after it.

    Nobody at the other end: there is nothing left to do here.
    """
    length = int.from_bytes(_exactly(channel, _LENGTH_BYTES), "little")
    return _exactly(channel, length)


def _exactly(channel: socket, length: int) -> bytes:
    data = channel.recv(length, MSG_WAITALL)
    while 0 < len(data) < length:
        more = channel.recv(length - len(data), MSG_WAITALL)
        data = data + more if more else b""
    if not data and length:
        os._exit(1)
    return data


def _lock_up(job: SlotJob, seccomp: bytes) -> None:
    limits = job["limits"]
    if limits["work_dir_mb"] != private_dirs.DEFAULT_MB:
        perform((("work dir size", lambda: private_dirs.resize(limits["work_dir_mb"])),))
    work_dir.write_program(job["program"], job["code"])
    work_dir.write_files(job["files"])
    perform(
        (
            ("stdin", lambda: _attach_stdin(job["stdin"])),
            # One more than the program: init.
            ("resource limits", lambda: set_limits(limits, other_processes=1)),
            ("capabilities", syscalls.clear_capabilities),
            ("seccomp", lambda: syscalls.load_seccomp_filter(seccomp)),
        )
    )


def _attach_stdin(content: bytes | None) -> None:
    if content is None:
        return  # /dev/null, from the zygote
    fd = syscalls.sealed_file(content)
    os.dup2(fd, 0)
    os.close(fd)


def _tell_start(job: SlotJob) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limits = job["limits"]
    numbers = (
        time.monotonic(),
        usage.ru_utime + usage.ru_stime,
        limits["wall_s"],
        limits["memory_mb"] << 20,
        job["fetches"],
    )
    os.write(_START_FD, marshal.dumps({"run": numbers}))
    os.close(_START_FD)


class Program:
    """What the zygote's outermost frame runs.

    Attributes:
        names: the namespace of `__main__`.
    """

    def __init__(self, job: SlotJob, arguments: ArgumentArea) -> None:
        self._path = f"{policy.WORK_DIR}/{job['program']}"
        self._code = job["code"]
        self._command = [sys.executable, self._path, *job["args"]]
        arguments.write(self._command)
        os.environ.update(job["env"])
        tops = {name.partition("/")[0].partition(".")[0] for name in job["files"]}
        self.is_shadowed = any(name in sys.modules for name in tops)
        """A request file has the name of a module that is imported already, and must be found first."""
        sys.argv[:] = [self._path, *job["args"]]
        sys.orig_argv[:] = self._command
        self._finish = finish.Finish()
        self.names = finish.new_main(self._path)

    def load(self) -> CodeType:
        """
        Raises:
            SyntaxError: as the interpreter would for the program's file.
        """
        return compile(self._code, self._path, "exec", dont_inherit=True)

    def end(self, error: BaseException | None) -> NoReturn:
        """End as the interpreter ends after a program that raised `error`, or nothing."""
        if error is not None:
            error = error.with_traceback(_without_our_frames(error.__traceback__))
        self._finish.end(error)

    def execute(self) -> NoReturn:
        """Start the interpreter afresh, for what cannot be done in one that has started already."""
        try:
            os.execve(sys.executable, self._command, dict(os.environ))  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(2, f"{sys.executable}: {error.strerror}\n".encode())
        os._exit(127)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(policy.WORK_DIR):
        if trace.tb_frame.f_code.co_filename not in _OUR_FILES:
            break
        trace = trace.tb_next
    return trace


_OUR_FILES = ("<string>", _prepare.__code__.co_filename)
