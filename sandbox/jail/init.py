"""PID 1 of a jail: builds it, starts the program, watches it, reaps, reports. When it ends, all inside ends."""

from __future__ import annotations

import binascii
import os
import resource
import select
import signal
import time

from . import enter, policy, program, syscalls, work_dir
from .steps import StepError, perform
from .watch import MemoryWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .frames import EndReason, Job, Outcome


def run(job: Job, sources: enter.Sources, lifeline: int) -> Outcome:
    """Build the jail, run the program in it, and say how it ended.

    Returns only after every process but this one has been killed and reaped.

    Raises:
        StepError: the program did not run.
    """
    perform(
        (
            # Init must not outlive the launcher. After the change of user, which would clear this.
            ("parent death signal", lambda: syscalls.set_parent_death_signal(signal.SIGKILL)),
            ("signals", _drop_handlers),
        )
    )
    enter.build_root(sources, job["limits"]["work_dir_mb"], job["namespaces"])
    work_dir.write_program(job["program"], binascii.a2b_base64(job["code"]), job["executable"])
    work_dir.write_files({name: binascii.a2b_base64(content) for name, content in job["files"].items()})
    # From here on root of this namespace owns init's /proc files: the program can read none of them.
    perform((("undumpable init", lambda: syscalls.set_dumpable(False)),))
    pid = _start(job)
    return _Supervision(job, pid, lifeline).until_the_end()


def _drop_handlers() -> None:
    # The kernel keeps signals from inside away from PID 1 unless it has a handler, and Python has one for SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _start(job: Job) -> int:
    """Start the program and wait until it is past execve.

    Raises:
        StepError: it did not get there.
    """
    errors, child_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        program.become(job, child_end)
    os.close(child_end)
    said = os.read(errors, 4096)
    os.close(errors)
    if said:
        number, step, message = said.decode().split("\n", 2)
        raise StepError(step, OSError(int(number), message))
    return pid


class _Supervision:
    def __init__(self, job: Job, pid: int, lifeline: int) -> None:
        self._job = job
        self._pid = pid
        self._lifeline = lifeline
        self._wait_status: int | None = None
        self._started_s = time.monotonic()
        self._memory = MemoryWatch(job["limits"]["memory_mb"] << 20)

    def until_the_end(self) -> Outcome:
        reason = self._watch()
        ended_s = time.monotonic()
        self._kill_and_reap_all()
        files, unfetched = work_dir.fetch(self._job["fetch_files"])
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "reason": reason,
            "wait_status": self._wait_status or 0,
            "started_s": self._started_s,
            "ended_s": ended_s,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_memory_bytes": max(self._memory.peak_bytes, usage.ru_maxrss * 1024),
            "files": files,
            "unfetched": unfetched,
        }

    def _watch(self) -> EndReason:
        """Return when the program has ended or must end. Nobody at the lifeline: end at once, and all with us."""
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN)
        # A descriptor and not SIGCHLD: init has no signal handlers, so that nothing inside can signal it.
        poll.register(os.pidfd_open(self._pid), select.POLLIN)
        deadline_s = self._started_s + self._job["limits"]["wall_s"]
        while True:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            ready = poll.poll(min(remaining_s, policy.WATCH_INTERVAL_S) * 1000 + 0.5)
            self._reap_ended()
            if self._wait_status is not None:
                return "exit"
            if any(fd == self._lifeline for fd, _ in ready):
                if os.read(self._lifeline, 1):
                    return "server"
                os._exit(1)
            if time.monotonic() >= deadline_s:
                return "wall"
            if self._memory.over_limit():
                return "memory"

    def _reap_ended(self) -> None:
        pid = -1
        while pid:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == self._pid:
                self._wait_status = wait_status

    def _kill_and_reap_all(self) -> None:
        # -1 is everything in the namespace but init, in one sweep that a fork cannot slip through.
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        while True:
            try:
                pid, wait_status = os.wait()
            except ChildProcessError:
                return
            if pid == self._pid:
                self._wait_status = wait_status
