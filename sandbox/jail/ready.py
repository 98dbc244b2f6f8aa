"""A ready child: does ahead what every program needs, waits for its job, and becomes the program."""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import resource
import sys
import time

from . import doors, extras, finish, head, messages, policy, private_dirs, syscalls, work_dir
from .program import inherited_limits, set_limits
from .seeds import Seeds
from .steps import StepError, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any, NoReturn

    from .frames import SlotJob

_JOB_FD, _START_FD = 3, 4
_signal: Any = sys.modules["_signal"]
"""`signal` without its enumerations, which take hundreds of steps."""
_PYC_HEADER_BYTES = 16


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

    def padded(self, command: list[str]) -> bytes:
        """What to write for `command`."""
        text = b"\0".join(argument.encode(errors="replace") for argument in command)[: self._size - 1]
        return text.ljust(self._size, b"\0")

    def write(self, padded: bytes) -> None:
        ctypes.memmove(self._start, padded, self._size)


def become(job_fd: int, start: int, stdout: int, stderr: int, kit: Kit) -> Program:
    """Wait for a job, and lock this process up for it. Whatever fails is told to init, and ends this process."""
    try:
        _prepare(job_fd, start, stdout, stderr, kit)
        job: SlotJob = marshal.loads(messages.receive_block(_JOB_FD))  # noqa: S302 - from the server
        if job["doors"]:
            doors.open_doors(_JOB_FD, job["doors"])
        os.close(_JOB_FD)
        if job["session"]:
            _become_session(job, kit)
        program = Program(job, kit)
        _lock_up(job, kit)
        _tell_start(job)
        if job["command"] or job["fresh_interpreter"] or program.is_shadowed:
            program.execute()
        return program
    except StepError as error:
        os.write(_START_FD, marshal.dumps({"failure": error.as_failure()}))
    except BaseException as error:  # noqa: BLE001 - never back into init's code, whatever went wrong
        failure = StepError("ready child", error if isinstance(error, Exception) else RuntimeError(repr(error)))
        os.write(_START_FD, marshal.dumps({"failure": failure.as_failure()}))
    os._exit(1)


def _prepare(job_fd: int, start: int, stdout: int, stderr: int, kit: Kit) -> None:
    # A session of its own: nothing that the program does to its process group reaches init.
    os.setsid()
    syscalls.set_dumpable(True)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    # Flags and locks belong to an open file, not to a descriptor: the zygote's /dev/null would carry them on.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # By way of high ones: the places may be taken by each other.
    job_fd, start = os.dup(job_fd), os.dup(start)
    os.dup2(job_fd, _JOB_FD, False)
    os.dup2(start, _START_FD, False)
    os.closerange(_START_FD + 1, _MOST_FDS)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    os.chdir(policy.WORK_DIR)
    kit.seeds.renew()
    gc.enable()


_MOST_FDS = 1 << 16


def _become_session(job: SlotJob, kit: Kit) -> NoReturn:
    _fill_folders(job)
    os.environ.update(job["env"])
    # Init, and the head and the backup of each member. The rest is for the soft limit that each cell sets.
    set_limits(job["limits"], 1 + 2 * policy.FAMILY_MOST, kit.inherited_limits)
    kit.session_lock()
    os.dup2(_START_FD, head.CONTROL_FD, False)
    os.close(_START_FD)
    os.write(head.CONTROL_FD, marshal.dumps({"session": job["limits"]["work_dir_mb"]}))
    head.serve(kit)


def _fill_folders(job: SlotJob) -> None:
    size_mb = job["limits"]["work_dir_mb"]
    if size_mb != private_dirs.DEFAULT_MB:
        perform((("work dir size", lambda: private_dirs.resize(size_mb)),))
    if job["files"]:
        work_dir.write_files(job["files"])


def _lock_up(job: SlotJob, kit: Kit) -> None:
    limits = job["limits"]
    work_dir.write_program(job["program"], job["code"], job["executable"])
    _fill_folders(job)
    if job["stdin"] is not None:  # else it stays /dev/null
        _attach_stdin(job["stdin"])
    # One more than the program: init.
    set_limits(limits, 1, kit.inherited_limits)
    kit.lock()


def _attach_stdin(content: bytes) -> None:
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
        bool(job["doors"]),
    )
    os.write(_START_FD, marshal.dumps({"run": numbers}))
    os.close(_START_FD)


class Kit:
    """What the children of a zygote need and can share, made once: each page that a child writes is copied for it.

    Attributes:
        inherited_limits: hard resource limits that the server was started with.
        held: what is not to be destroyed in a child, which would be work for nothing.
    """

    def __init__(self, seccomp: bytes, session_seccomp: bytes) -> None:
        self.inherited_limits = inherited_limits()
        self.arguments = ArgumentArea.own()
        self.seeds = Seeds()
        self.held: list[object] = []
        self.lock = syscalls.prepared_lock(seccomp)
        self.session_lock = syscalls.prepared_lock(session_seccomp, policy.CAP_SYS_CHROOT)
        self.path = f"{policy.WORK_DIR}/{policy.PROGRAM_NAME}"
        self.command = [sys.executable, self.path]
        self.command_line = self.arguments.padded(self.command)
        sys.argv[:] = [self.path]
        sys.orig_argv[:] = self.command
        self.main = finish.new_main(self.path)
        self.finish = finish.Finish()


class Program:
    """What the zygote's outermost frame runs.

    Attributes:
        names: the namespace of `__main__`.
        last: the code of a final bare expression whose value is asked for; set by `load`.
    """

    def __init__(self, job: SlotJob, kit: Kit) -> None:
        self._kit = kit
        self._echoes = job["echoes"]
        self._figures = job["figures"]
        self.last: CodeType | None = None
        self._code = job["code"]
        self._code_object = job["code_object"]
        self._path = kit.path
        self._finish = kit.finish
        self._command = kit.command
        self.names = kit.main
        self.is_shadowed = False
        """A request file has the name of a module that is imported already, and must be found first."""
        command_line = kit.command_line
        if job["files"] or job["args"] or job["command"]:
            command_line = self._customize(job, kit)
        kit.arguments.write(command_line)
        if job["env"]:
            os.environ.update(job["env"])

    def _customize(self, job: SlotJob, kit: Kit) -> bytes:
        tops = {name.partition("/")[0].partition(".")[0] for name in job["files"]}
        self.is_shadowed = any(name in sys.modules for name in tops)
        self._path = f"{policy.WORK_DIR}/{job['program']}"
        self._command = [*(job["command"] or (sys.executable, self._path)), *job["args"]]
        sys.argv[:] = self._command[1:]
        sys.orig_argv[:] = self._command
        if self._path != kit.path:
            self.names = finish.new_main(self._path)
        return kit.arguments.padded(self._command)

    def load(self) -> CodeType:
        """
        Raises:
            SyntaxError: as the interpreter would for the program's file.
        """
        if self._code_object:
            # Made in a jail from what a stranger wrote, and so not to be read before this process is locked up.
            stored: CodeType = marshal.loads(memoryview(self._code_object)[_PYC_HEADER_BYTES:])  # noqa: S302
            return stored
        if self._echoes:
            code, self.last = extras.split(self._code, self._path)
            return code
        return compile(self._code, self._path, "exec", dont_inherit=True)

    def keep(self, value: object) -> None:
        """Send the value of the last expression back."""
        extras.keep_value(value)

    def end(self, error: BaseException | None) -> NoReturn:
        """End as the interpreter ends after a program that raised `error`, or nothing."""
        if error is not None:
            error = error.with_traceback(_without_our_frames(error.__traceback__))
        if self._figures:
            extras.keep_figures()
        self._finish.end(error)

    def execute(self) -> NoReturn:
        """Start the interpreter afresh, for what cannot be done in one that has started already, or another program."""
        if self._code_object:
            self._command[1] = f"{self._path}c"
            with open(self._command[1], "wb") as file:
                file.write(self._code_object)
        # Python ignores these, and an ignored signal stays ignored across execve.
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        try:
            os.execve(self._command[0], self._command, dict(os.environ))  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(2, f"{self._command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(policy.WORK_DIR):
        if trace.tb_frame.f_code.co_filename not in _OUR_FILES:
            break
        trace = trace.tb_next
    return trace


_OUR_FILES = ("<string>", _prepare.__code__.co_filename, extras.split.__code__.co_filename)
