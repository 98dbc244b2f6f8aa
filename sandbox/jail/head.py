"""A head: the process that is a session. It runs cells, and forks itself.

A cell runs in the head itself. Just before, the head forks a *backup*, which does nothing but wait: when the cell is
ended from outside, or ends the process, init lets the backup go on as the head. So a cell that ends well leaves the
very process that it ran in, with its threads, children and process id; and what the backup holds is the state before.

The head is not trusted: it has run a program's code. What it tells init are single letters, and init takes from it
nothing that it could not have done to itself. What it tells the server is checked there as a program's output is.
"""

from __future__ import annotations

import builtins
import json
import marshal
import math
import os
import resource
import sys
import time
from contextlib import suppress

from . import cell, messages, open_files, policy, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from .ready import Kit

CONTROL_FD = 3
STARTED, READY, DONE, NOT_COPIED = b"S", b"B", b"D", b"K"
"""What a head says to init: a cell has started, followed by a hindrance if there is one; this is a backup, or a copy;
the cell has ended by itself; no copy can be forked, followed by the hindrance."""
THREADS, SHARED_MEMORY, CHANNELS, TASKS, NO_PROCESS, ASKED, NO_BACKUP = b"t", b"m", b"o", b"l", b"p", b"a", b"f"
"""Why there is no way back, or no copy. The last one is init's: the files could not be set aside."""
_signal: Any = sys.modules["_signal"]
_LENGTH_BYTES = 8


def serve(kit: Kit) -> NoReturn:
    """Serve init for as long as this process lives. Its control socket is at CONTROL_FD."""
    try:
        head = Head(kit)
        while True:
            with suppress(KeyboardInterrupt):  # one that came too late for its cell
                head.serve_one()
    finally:
        os._exit(1)  # never back into init's code, whatever a cell has made of us


class Head:
    def __init__(self, kit: Kit) -> None:
        names = kit.main
        del names["__file__"], names["__cached__"]
        names["__loader__"] = None
        sys.argv[:] = [""]
        self._cells = cell.Cells(names)
        self._fork = syscalls.prepared_sibling_fork()
        self._control = messages.channel(CONTROL_FD)
        self._files: list[open_files.OpenFile] = []
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._replace_input()
        self._detach()

    def serve_one(self) -> None:
        try:
            kind, value, fds = messages.receive(self._control)
        except OSError:
            os._exit(1)  # a cell has closed it
        if kind == messages.CELL:
            self._cell(value, fds)
        elif kind == messages.FORK:
            self._copy(fds)
        else:
            os._exit(0)

    def _cell(self, order: tuple[int, float, bool, int], fds: list[int]) -> None:
        """Run a cell. Returns a second time, in the backup, if that is ever needed."""
        number, cpu_s, transactional, processes = order
        backup = fds.pop()
        hindrance = self._hindrance((*fds, backup)) if transactional else ASKED
        if not hindrance:
            apart, apart_write = os.pipe()
            pid = self._fork()
            if pid == 0:
                self._wait_for_need(backup, (apart, apart_write), fds)
                return
            os.close(apart_write)
            hindrance = NO_PROCESS if pid < 0 else b""
            os.read(apart, 1)
            os.close(apart)
        os.close(backup)
        self._files = []
        self._control.send(STARTED + hindrance)
        _set_soft_limits(cpu_s, processes)
        self._run(number, fds)

    def _wait_for_need(self, backup: int, apart: tuple[int, int], fds: list[int]) -> None:
        """What a backup does. Most are never needed, and are to cost as little as can be."""
        os.setsid()  # what the cell does to its process group must not reach us: so it is not to start before
        for fd in apart:
            os.close(fd)
        control = messages.channel(backup)
        with suppress(OSError):
            control.send(READY)
            if messages.receive(control)[0] == messages.BACK:
                self._take_over(control.detach(), fds)
                open_files.put_back(self._files)
                self._files = []
                return
        os._exit(0)

    def _take_over(self, control: int, unneeded: list[int]) -> None:
        """A backup or a copy becomes a head: from now on init is at `control`."""
        for fd in unneeded:
            os.close(fd)
        os.dup2(control, CONTROL_FD, False)
        os.close(control)

    def _run(self, number: int, fds: list[int]) -> None:
        job, out, err = fds[:3]
        pid = os.getpid()
        for fd, place in ((out, 1), (err, 2), *((each, 0) for each in fds[3:])):
            os.dup2(fd, place)
            os.close(fd)
        has_input = len(fds) > 3
        self._replace_input(has_input)
        report: dict[str, Any] = {}
        try:
            asked = marshal.loads(messages.receive_block(job))  # noqa: S302 - from the server
            report = self._cells.run(asked["code"], number)
            if os.getpid() != pid:
                cell.leave_forked_child(report)
            cell.flush()
            report["figures"] = cell.figures() if asked["figures"] else []
            report.update(cell.fetched(asked["fetch_files"]))
            _send(job, report)
        except BaseException:  # noqa: BLE001 - an interrupt, or no memory, at the wrong moment: the cell is over all the same
            cell.flush()
        if os.getpid() != pid:
            os._exit(1)
        with suppress(OSError):
            os.close(job)
        if has_input:
            self._replace_input()
        self._detach()
        self._control.send(DONE)

    def _replace_input(self, has_input: bool = False) -> None:
        """A stream of its own for each cell with input: the last one may hold some that was read ahead."""
        if has_input:
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
            builtins.input = _input
        else:
            os.dup2(self._null, 0)
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
            builtins.input = cell.no_input

    def _detach(self) -> None:
        """What threads print between cells goes nowhere."""
        os.dup2(self._null, 1)
        os.dup2(self._null, 2)

    def _hindrance(self, ours: Sequence[int]) -> bytes:
        """Why this process cannot be forked so that the fork is the same and apart; empty if it can."""
        if len(os.listdir("/proc/self/task")) > 1:
            return THREADS
        self._files, channels = open_files.seen((0, 1, 2, CONTROL_FD, self._null, *ours, *self._cells.loop_fds()))
        if channels:
            return CHANNELS  # who waits for the end of one would wait for the fork, too
        if "mmap" in sys.modules:
            with open("/proc/self/maps", "rb") as file:
                if b" rw-s " in file.read():
                    return SHARED_MEMORY
        return b""

    def _copy(self, fds: list[int]) -> None:
        """Fork a copy; returns a second time in it."""
        control, root = fds
        hindrance = self._hindrance(fds) or (TASKS if self._cells.has_tasks() else b"")
        if not hindrance:
            folder = os.getcwd() if os.path.exists(".") else policy.WORK_DIR
            pid = self._fork()
            if pid == 0:
                os.setsid()
                syscalls.fence()
                _enter(root, folder)
                open_files.open_anew(self._files)
                self._cells.leave_loop()
                self._take_over(control, [root])
                self._control.send(READY)
                return
            hindrance = NO_PROCESS if pid < 0 else b""
        if hindrance:
            self._control.send(NOT_COPIED + hindrance)
        for fd in fds:
            os.close(fd)


_input = builtins.input


def _set_soft_limits(cpu_s: float, processes: int) -> None:
    """For this cell. The hard ones were set when the session was opened, and cannot be raised."""
    for which, soft in (
        (resource.RLIMIT_CPU, math.ceil(time.process_time() + cpu_s)),
        (resource.RLIMIT_NPROC, processes),
    ):
        _, hard = resource.getrlimit(which)
        with suppress(OSError, ValueError):
            resource.setrlimit(which, (soft if hard < 0 else min(soft, hard), hard))


def _enter(root: int, folder: str) -> None:
    os.fchdir(root)
    os.chroot(".")
    try:
        os.chdir(folder)
    except OSError:
        os.chdir(policy.WORK_DIR)


def _send(fd: int, report: dict[str, Any]) -> None:
    data = json.dumps(report).encode("ascii")
    data = len(data).to_bytes(_LENGTH_BYTES, "little") + data
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
