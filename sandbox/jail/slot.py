"""A slot: PID 1 of namespaces that are used by one call at a time. It keeps one child ready, watches it, cleans up.

What a slot keeps from call to call: its user, pid, net, mount and ipc namespaces, its `/proc`, and this process. What
it does not keep: processes, private folders that were touched, descriptors. Where something could be left in the net
namespace, the slot ends. Init reads nothing of a job but numbers, because the next child is forked from its memory.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import signal
import time
from _socket import AF_UNIX, SOCK_STREAM, socket, socketpair

from . import enter, messages, policy, ready, syscalls, work_dir
from .private_dirs import private_dirs
from .steps import StepError, perform
from .watch import MemoryWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from .frames import EndReason, SlotOutcome, Started


class Setting:
    """What all slots of a zygote share."""

    def __init__(self, binds: Sequence[str], seccomp: bytes, arguments: ready.ArgumentArea) -> None:
        self.binds = binds
        self.seccomp = seccomp
        self.arguments = arguments


def enter_namespaces() -> None:
    """
    Raises:
        StepError: they cannot be made.
    """
    perform((("slot namespaces", lambda: enter.unshare_namespaces(policy.INNER_ID, policy.SLOT_NAMESPACES)),))


def serve(channel: socket, setting: Setting) -> ready.Program:
    """Serve calls as init; returns in each child that is to become a program.

    Raises:
        StepError: the slot cannot be set up.
    """
    perform(
        (
            ("signals", _drop_handlers),
            ("loopback", enter.raise_loopback),
            ("proc", lambda: enter.mount_proc("", for_program=True)),
            # Both are inherited by all children, and init does not need what it gives up.
            ("bounding set", syscalls.drop_bounding_set),
            ("no new privileges", syscalls.set_no_new_privileges),
            # From here on root of this namespace owns init's /proc files: the program can read none of them.
            ("undumpable init", lambda: syscalls.set_dumpable(False)),
        )
    )
    gc.disable()
    folders = private_dirs(setting.binds)
    while True:
        for folder in folders:
            folder.renew()
        program = _serve_one(channel, setting)
        if program is not None:
            return program
        if _left_connections():
            os._exit(0)


def _drop_handlers() -> None:
    # The kernel keeps signals from inside away from PID 1 unless it has a handler, and Python has one for SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _left_connections() -> bool:
    """A connection that was closed keeps its port for a minute: the next program must not find it taken."""
    fd = os.open("/proc/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)
    fields = os.read(fd, 1024).partition(b"TCP: ")[2].split()
    os.close(fd)
    return fields[1] != b"0" or fields[5] != b"0"  # inuse, tw


def _serve_one(channel: socket, setting: Setting) -> ready.Program | None:
    job_server, job_child = socketpair(AF_UNIX, SOCK_STREAM)
    (out_read, out_write), (err_read, err_write), (start_read, start_write) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        return ready.become(job_child.detach(), start_write, out_write, err_write, setting.seccomp, setting.arguments)
    for fd in (out_write, err_write, start_write):
        os.close(fd)
    messages.send(channel, messages.READY, None, (job_server.fileno(), out_read, err_read))
    job_server.close()
    os.close(out_read)
    os.close(err_read)
    try:
        _Supervision(channel, pid, start_read, job_child).until_the_end()
    finally:
        os.close(start_read)
        job_child.close()
    return None


class _Supervision:
    def __init__(self, channel: socket, pid: int, start: int, job: socket) -> None:
        self._channel = channel
        self._pid = pid
        self._start = start
        self._job = job
        self._wait_status = -1
        self._cpu_s = 0.0
        self._peak_bytes = 0

    def until_the_end(self) -> None:
        pidfd = os.pidfd_open(self._pid)
        try:
            poll = select.poll()
            poll.register(self._channel.fileno(), select.POLLIN)
            poll.register(self._start, select.POLLIN)
            # A descriptor and not SIGCHLD: init has no signal handlers, so that nothing inside can signal it.
            poll.register(pidfd, select.POLLIN)
            message = self._until_started(poll)
            if "failure" in message:
                self._kill_and_reap_all()
                messages.send(self._channel, messages.FAILED, message["failure"])
                return
            poll.unregister(self._start)
            self._run(poll, message["run"])
        finally:
            os.close(pidfd)

    def _until_started(self, poll: select.poll) -> Started:
        """What the child said on becoming the program."""
        while True:
            ready_fds = [fd for fd, _ in poll.poll()]
            if self._start in ready_fds:
                # A short message in a pipe arrives whole.
                said = os.read(self._start, 8192)
                lost = StepError("run", OSError(0, "the ready child ended")).as_failure()
                message: Started = marshal.loads(said) if said else {"failure": lost}  # noqa: S302
                return message
            if self._channel.fileno() in ready_fds and self._asked_to_end():
                return {"failure": StepError("run", OSError(0, "ended before its start")).as_failure()}

    def _asked_to_end(self) -> bool:
        kind, _, _ = messages.receive(self._channel)
        if not kind:
            os._exit(1)  # the server is gone, or has given this slot up
        return kind == messages.END_RUN

    def _run(self, poll: select.poll, started: tuple[float, float, float, int, bool]) -> None:
        started_s, own_cpu_s, wall_s, memory_bytes, fetches = started
        memory = MemoryWatch(memory_bytes)
        reason = self._watch(poll, started_s + wall_s, memory)
        ended_s = time.monotonic()
        self._kill_and_reap_all()
        if fetches:
            self._fetch()
        outcome: SlotOutcome = {
            "reason": reason,
            "wait_status": self._wait_status,
            "started_s": started_s,
            "ended_s": ended_s,
            "cpu_s": max(0.0, self._cpu_s - own_cpu_s),
            "peak_memory_bytes": max(memory.peak_bytes, self._peak_bytes),
        }
        messages.send(self._channel, messages.ENDED, outcome)

    def _watch(self, poll: select.poll, deadline_s: float, memory: MemoryWatch) -> EndReason:
        """Return when the program has ended or must end."""
        interval_s = policy.WATCH_INTERVAL_S
        while True:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            ready_fds = poll.poll(min(remaining_s, interval_s) * 1000 + 0.5)
            self._reap(os.WNOHANG)
            if self._wait_status >= 0:
                return "exit"
            if any(fd == self._channel.fileno() for fd, _ in ready_fds) and self._asked_to_end():
                return "server"
            if time.monotonic() >= deadline_s:
                return "wall"
            if memory.over_limit():
                return "memory"

    def _kill_and_reap_all(self) -> None:
        # -1 is everything in the namespace but init, in one sweep that a fork cannot slip through.
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._reap(0)

    def _reap(self, options: int) -> None:
        """Reap all that have ended; without WNOHANG, until none is left."""
        while True:
            try:
                pid, wait_status, usage = os.wait4(-1, options)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._cpu_s += usage.ru_utime + usage.ru_stime
            self._peak_bytes = max(self._peak_bytes, usage.ru_maxrss * 1024)
            if pid == self._pid:
                self._wait_status = wait_status

    def _fetch(self) -> None:
        """Send the files in another process: what they hold must not stay in the memory of the next child."""
        pid = os.fork()
        if pid == 0:
            _send_files(self._job)
        poll = select.poll()
        pidfd = os.pidfd_open(pid)
        poll.register(pidfd, select.POLLIN)
        poll.register(self._channel.fileno(), select.POLLIN)
        while not any(fd == pidfd for fd, _ in poll.poll()):
            if self._asked_to_end():
                os.kill(pid, signal.SIGKILL)
        os.close(pidfd)
        os.waitpid(pid, 0)


def _send_files(job: socket) -> NoReturn:
    try:
        names = marshal.loads(ready.receive_block(job))  # noqa: S302 - from the server
        job.sendall(marshal.dumps(work_dir.fetch(names)))
    finally:
        os._exit(0)
