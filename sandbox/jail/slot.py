"""A slot: PID 1 of namespaces that are used by one call at a time. It keeps one child ready, watches it, cleans up.

What a slot keeps from call to call: its user, pid, net, mount and ipc namespaces, its `/proc`, and this process. What
it does not keep: processes, private folders that were touched, descriptors. Where something could be left in the net
namespace, the slot ends. Init reads nothing of a job but numbers, because the next child is forked from its memory.
"""

from __future__ import annotations

import errno
import gc
import itertools
import marshal
import os
import select
import signal
import time
from _socket import AF_UNIX, SOCK_SEQPACKET, SOCK_STREAM, socket, socketpair
from contextlib import suppress

from . import enter, family, messages, policy, ready, syscalls, work_dir
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

    def __init__(self, binds: Sequence[str], namespaces: int, kit: ready.Kit) -> None:
        self.binds = binds
        self.namespaces = namespaces
        self.kit = kit


def enter_namespaces(namespaces: int) -> None:
    """
    Raises:
        StepError: they cannot be made.
    """
    perform((("slot namespaces", lambda: enter.unshare_namespaces(policy.INNER_ID, namespaces)),))


def serve(channel: socket, setting: Setting) -> ready.Program:
    """Serve calls as init; returns in each child that is to become a program.

    Raises:
        StepError: the slot cannot be set up.
    """
    perform(
        (
            ("signals", _drop_handlers),
            ("loopback", lambda: enter.raise_loopback(setting.namespaces)),
            ("socket buffers", lambda: enter.bound_socket_buffers(setting.namespaces)),
            ("proc", lambda: enter.mount_proc("", for_program=True)),
            # Both are inherited by all children, and init does not need what it gives up.
            ("bounding set", syscalls.drop_bounding_set),
            ("no new privileges", syscalls.set_no_new_privileges),
            # From here on root of this namespace owns init's /proc files: the program can read none of them.
            ("undumpable init", lambda: syscalls.set_dumpable(False)),
        )
    )
    gc.disable()
    setting.kit.held += [channel, setting]
    folders = private_dirs(setting.binds)
    own_network = bool(setting.namespaces & policy.NAMESPACE_FLAGS["CLONE_NEWNET"])
    for number in itertools.count():
        for folder in folders:
            folder.renew()
        program = _serve_one(channel, number, setting)
        if program is not None:
            return program
        if own_network and _left_connections():
            break
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


def _serve_one(channel: socket, number: int, setting: Setting) -> ready.Program | None:
    job_server, job_child = (end.detach() for end in socketpair(AF_UNIX, SOCK_STREAM))
    # A socket and not a pipe: with a session it stays, and goes both ways.
    start_read, start_write = (end.detach() for end in socketpair(AF_UNIX, SOCK_SEQPACKET))
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    pid = syscalls.fork()
    if pid == 0:
        return ready.become(job_child, start_write, out_write, err_write, setting.kit)
    if pid < 0:
        raise OSError(errno.EAGAIN, "fork of a ready child")
    messages.send(channel, messages.READY, number, (job_server, out_read, err_read))
    for fd in (out_write, err_write, start_write, job_server, out_read, err_read):
        os.close(fd)
    _Supervision(channel, number, pid, start_read, job_child, setting).until_the_end()
    os.close(start_read)
    os.close(job_child)
    return None


class _Supervision:
    """One child, from ready to reaped. Most programs end so soon that nothing is done before their end."""

    def __init__(self, channel: socket, number: int, pid: int, start: int, job: int, setting: Setting) -> None:
        self._setting = setting
        self._channel = channel
        self._number = number
        self._channel_fd = channel.fileno()
        self._pid = pid
        self._start = start
        self._job = job
        self._wait_status = -1
        self._cpu_s = 0.0
        self._peak_bytes = 0

    def until_the_end(self) -> None:
        # A descriptor and not SIGCHLD: init has no signal handlers, so that nothing inside can signal it.
        pidfd = os.pidfd_open(self._pid)
        poll = select.poll()
        poll.register(self._channel_fd, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        reason: EndReason = "exit"
        started: Started | None = None
        kind = b""
        while not kind and not any(fd == pidfd for fd, _ in poll.poll()):
            kind = self._asked()
        if kind == messages.WATCH:
            started = self._started()
            if "run" in started:
                reason = self._watch(poll, started["run"])
        elif kind == messages.END_RUN:
            reason = "server"
        elif kind == messages.SESSION:
            started = self._started()
            if "session" in started:
                os.close(pidfd)
                family.serve(self._channel, self._pid, self._start, started["session"], self._setting.binds)
        ended_s = time.monotonic()
        self._kill_and_reap_all()
        os.close(pidfd)
        self._report(started or self._started(), reason, ended_s)

    def _started(self) -> Started:
        """What the child said on becoming the program. A short message in a pipe arrives whole."""
        said = os.read(self._start, 8192)
        if not said:
            return {"failure": StepError("ready child", OSError(0, "lost")).as_failure()}
        message: Started = marshal.loads(said)  # noqa: S302 - from our child, before it became the program
        return message

    def _asked(self) -> bytes:
        kind, number, _ = messages.receive(self._channel)
        if not kind:
            os._exit(1)  # the server is gone, or has given this slot up
        # One that was sent while the run before was ending is not about this run.
        return kind if number == self._number else b""

    def _watch(self, poll: select.poll, run: tuple[float, float, float, int, bool, bool]) -> EndReason:
        """Return when the program has ended or must end."""
        deadline_s = run[0] + run[2]
        memory = MemoryWatch(run[3])
        while True:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            ready_fds = poll.poll(min(remaining_s, policy.WATCH_INTERVAL_S) * 1000 + 0.5)
            self._reap(os.WNOHANG)
            if self._wait_status >= 0:
                return "exit"
            if any(fd == self._channel_fd for fd, _ in ready_fds) and self._asked() == messages.END_RUN:
                return "server"
            if time.monotonic() >= deadline_s:
                return "wall"
            over = memory.over_limit()
            self._peak_bytes = max(self._peak_bytes, memory.peak_bytes)
            if over:
                return "memory"

    def _kill_and_reap_all(self) -> None:
        # -1 is everything in the namespace but init, in one sweep that a fork cannot slip through.
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
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

    def _report(self, started: Started, reason: EndReason, ended_s: float) -> None:
        if "failure" in started:
            messages.send(self._channel, messages.FAILED, started["failure"])
            return
        started_s, own_cpu_s, _, _, fetches, has_doors = started["run"]
        if fetches:
            self._fetch()
        outcome: SlotOutcome = {
            "reason": reason,
            "wait_status": self._wait_status,
            "started_s": started_s,
            "ended_s": ended_s,
            "cpu_s": max(0.0, self._cpu_s - own_cpu_s),
            "peak_memory_bytes": self._peak_bytes,
        }
        messages.send(self._channel, messages.ENDED, outcome)
        if has_doors:
            os._exit(0)  # what a network remembers of this call must not be there for the next

    def _fetch(self) -> None:
        """Send the files in another process: what they hold must not stay in the memory of the next child."""
        pid = os.fork()
        if pid == 0:
            _send_files(self._job)
        messages.send(self._channel, messages.FETCHING)
        pidfd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._channel_fd, select.POLLIN)
        while not any(fd == pidfd for fd, _ in poll.poll()):
            if self._asked() == messages.END_RUN:
                os.kill(pid, signal.SIGKILL)
        os.close(pidfd)
        os.waitpid(pid, 0)


def _send_files(job: int) -> NoReturn:
    try:
        names = marshal.loads(messages.receive_block(job))  # noqa: S302 - from the server
        files = memoryview(marshal.dumps(work_dir.fetch(names)))
        while files:
            files = files[os.write(job, files) :]
    finally:
        os._exit(0)
