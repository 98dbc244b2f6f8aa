"""Init of a slot that is a session with its forks: a family. It gives cells to heads, ends them, and undoes them.

Several members may run a cell at a time, so init waits for all of them at once. What it reads from heads are single
letters, and who sent them is the kernel's word. Cells and their output go past it, by descriptors.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from _socket import AF_UNIX, SOCK_SEQPACKET, socket
from contextlib import suppress

from . import head, member, messages, views, watch
from .copies import Copies
from .member import Cell, Forking, Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from .frames import CellOrder, CellOutcome

_START_S = 30.0
_BACKUP_S = 5.0
_ENDING_S = 0.1
_INTERRUPT_GRACE_S = 2.0
_FORK_S = 30.0
_KILLS_MOST = 1000


def serve(channel: socket, pid: int, control_fd: int, work_dir_mb: int, binds: Sequence[str]) -> NoReturn:
    """Serve the family whose first head is `pid`, with init's end of its control socket at `control_fd`."""
    control = member.control(socket(AF_UNIX, SOCK_SEQPACKET, 0, control_fd))
    family = Family(channel, work_dir_mb)
    family.add(Member(0, views.View(binds), control, pid))
    messages.send(channel, messages.OPENED)
    while True:
        family.serve_once()


class Family:
    """
    Attributes:
        channel: to the server. members: by the number that the server gave them.
        work_dir_mb: size of each private folder of each member.
    """

    def __init__(self, channel: socket, work_dir_mb: int) -> None:
        self.channel = channel
        self.work_dir_mb = work_dir_mb
        self.members: dict[int, Member] = {}
        self._ended: dict[int, tuple[int, float]] = {}
        """Wait status and CPU seconds of heads that have ended."""
        self._copies = Copies(self)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self.listen(channel.fileno(), self._asked)

    def listen(self, fd: int, handler: Callable[[], object]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def serve_once(self) -> None:
        look_s = min((each.look_s for each in self.members.values()), default=0.0)
        for fd, _ in self._poll.poll(max(0.0, look_s - time.monotonic()) * 1000 + 0.5 if look_s else None):
            handler = self._handlers.get(fd)
            if handler is not None:  # else one before it has taken it away
                handler()
        self._reap()
        now_s = time.monotonic()
        for each in list(self.members.values()):
            if now_s >= each.look_s:
                self._look(each)
                each.plan_look(time.monotonic())

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, wait_status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if any(pid == each.pid for each in self.members.values()):
                    self._ended[pid] = (wait_status, usage.ru_utime + usage.ru_stime)

    # --- members -----------------------------------------------------------------------------------------------------

    def add(self, new: Member) -> None:
        self.members[new.number] = new
        self._attend(new)

    def _attend(self, each: Member) -> None:
        self.listen(each.control.fileno(), lambda: self.heard(each))
        self.listen(each.pidfd, lambda: self._head_ended(each))

    def _neglect(self, each: Member) -> None:
        self.forget(each.control.fileno())
        self.forget(each.pidfd)

    def _processes(self, each: Member) -> list[str]:
        found = watch.all_processes()
        return found if len(self.members) == 1 else [pid for pid in found if each.view.is_of(pid)]

    def remove(self, each: Member) -> None:
        """End a member, with all its processes and folders."""
        if each.cell is not None:
            each.cell.close()
        self._neglect(each)
        self._kill(each, frozenset())
        del self.members[each.number]
        self._ended.pop(each.pid, None)
        each.close_head()
        each.view.close()

    def _kill(self, each: Member, spared: frozenset[str]) -> None:
        """Kill the head of a member, and all its processes but `spared`, and wait until they are gone."""
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
        while each.pid not in self._ended and os.path.exists(f"/proc/{each.pid}"):
            select.select((each.pidfd,), (), (), 1.0)
            self._reap()
        for _ in range(_KILLS_MOST):
            left = [pid for pid in self._processes(each) if pid not in spared]
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.0005)
            self._reap()

    def _head_ended(self, each: Member) -> None:
        if not _has_ended(each.pidfd):
            return  # said of a descriptor that had this number before
        pid = each.pid
        while self.heard(each):  # what it said before its end
            pass
        if each.number in self.members and each.pid == pid:
            self._broke_off(each)

    def _lose(self, each: Member, why: str) -> None:
        if each.forking is not None:
            each.forking.failure = why
            self._copies.report(each)
        self.remove(each)
        messages.send(self.channel, messages.LOST, (each.number, why))

    # --- what the server asks ----------------------------------------------------------------------------------------

    def _asked(self) -> None:
        kind, value, fds = messages.receive(self.channel)
        if not kind:
            os._exit(1)  # the server is gone, or has given this slot up
        each = self.members.get(value["member"]) if kind == messages.CELL else self.members.get(value[0])
        if each is not None:
            if kind == messages.CELL:
                self._give(each, value, fds)
            elif kind == messages.END_CELL:
                if each.cell is not None and each.cell.order["cell"] == value[1]:
                    self._end(each, "server")
            elif kind == messages.FORK:
                each.forking = Forking(value[1], time.monotonic() + _FORK_S)
                self._copies.next(each)
            elif kind == messages.CLOSE:
                self.remove(each)
        for fd in fds:
            os.close(fd)

    def _give(self, each: Member, order: CellOrder, fds: list[int]) -> None:
        aside, hindrance = None, b"" if order["transactional"] else head.ASKED
        if not hindrance:
            try:
                aside = views.Aside(each.view, self.work_dir_mb)
            except OSError:
                hindrance = head.NO_BACKUP
        backup, theirs = member.control_pair()
        each.cell = cell = Cell(order, backup, aside, hindrance, each)
        cell.deadline_s = time.monotonic() + _START_S
        each.plan_look(time.monotonic())
        cell.known = set(self._processes(each)) if aside is not None else set()
        cell.watch = watch.MemoryWatch(order["memory_bytes"], lambda: self._processes(each), each.view.used_bytes)
        each.limits, each.idle_cpu_s = (order["cpu_s"], order["memory_bytes"]), None
        # Init, and a head and a backup for each member.
        processes = order["processes"] + 1 + 2 * len(self.members)
        told = (order["cell"], order["cpu_s"], not hindrance, processes)
        with suppress(OSError):  # the head is gone, which is seen next
            messages.send(each.control, messages.CELL, told, (*fds, theirs))
        os.close(theirs)

    # --- what heads say ----------------------------------------------------------------------------------------------

    def heard(self, each: Member) -> bool:
        """Take in one message; says whether there was one."""
        try:
            said, sender = member.heard(each.control)
        except BlockingIOError:
            return False
        except OSError:
            said, sender = b"", each.pid
        if not said:
            self._broke_off(each)
            return False
        if sender != each.pid:
            return True  # a child of a cell has found the socket
        cell, kind = each.cell, said[:1]
        if cell is not None and kind == head.STARTED and not cell.has_started:
            self._started(each, cell, said[1:2])
        elif cell is not None and kind == head.DONE and cell.has_started:
            self._done(each, cell)
        elif each.forking is not None and kind == head.NOT_COPIED:
            each.forking.failure = said[1:2]
            self._copies.report(each)
        else:
            self._broke_off(each)
        return True

    def _broke_off(self, each: Member) -> None:
        """A head has ended, or has closed its control socket, or talks out of turn."""
        # The socket of a process that ends is closed a moment before it has ended.
        ended = _has_ended(each.pidfd, _ENDING_S)
        if each.cell is not None:
            self._undo(each, "exit" if ended else "protocol")
        elif ended:
            self._lose(each, "its process ended between two cells")
        else:
            self._lose(each, "its process broke off the connection to its supervisor")

    def _started(self, each: Member, cell: Cell, hindrance: bytes) -> None:
        cell.hindrance = cell.hindrance or hindrance
        cell.started_s = time.monotonic()
        cell.deadline_s = cell.started_s + cell.order["wall_s"]
        each.plan_look(cell.started_s)
        if cell.hindrance:
            cell.close()
        if cell.is_unwanted:
            self._end(each, "server")

    def _done(self, each: Member, cell: Cell) -> None:
        cell.close()
        each.cell = None
        each.plan_look(time.monotonic())
        self._report(each, cell, cell.reason or "exit", "in_place" if cell.hindrance else "committed", 0)

    # --- ends of cells -----------------------------------------------------------------------------------------------

    def _look(self, each: Member) -> None:
        cell, now_s = each.cell, time.monotonic()
        if each.forking is not None and now_s > each.forking.deadline_s:
            self._lose(each, "it could not be forked in time")
        elif cell is None:
            self._look_at_idle(each)
        elif now_s >= cell.deadline_s or member.cpu_s(each.pid) - cell.cpu_before_s > cell.order["cpu_s"] + 1:
            self._end(each, "wall")
        elif cell.watch.over_limit():
            self._end(each, "memory")

    def _look_at_idle(self, each: Member) -> None:
        """What goes on in the background has, until the next cell, as much as a cell."""
        if each.limits is None:
            return
        cpu_s, memory_bytes = each.limits
        processes = self._processes(each)
        used_s = sum(member.cpu_s(int(pid)) for pid in processes)
        if each.idle_cpu_s is None:
            each.idle_cpu_s = used_s
        elif used_s - each.idle_cpu_s > cpu_s:
            self._lose(each, f"its background work took more than {cpu_s:.0f} CPU seconds between two cells")
        elif watch.MemoryWatch(memory_bytes, lambda: processes, each.view.used_bytes).over_limit():
            self._lose(each, f"its background work took more than {memory_bytes >> 20} MiB between two cells")

    def _end(self, each: Member, reason: str) -> None:
        cell = each.cell
        assert cell is not None
        if not cell.has_started and reason == "server":
            cell.is_unwanted = True  # nothing of it has run: it is ended as soon as there is something to go back to
        elif cell.hindrance and cell.has_started and cell.reason is None and reason != "memory":
            # There is no way back: ask the cell to end by itself before the session is given up.
            cell.reason, cell.deadline_s = reason, time.monotonic() + _INTERRUPT_GRACE_S
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGINT)
        else:
            self._undo(each, cell.reason or reason)

    def _undo(self, each: Member, reason: str) -> None:
        """A cell did not end by itself, or took its process along: go back to before it, or give the member up."""
        cell = each.cell
        assert cell is not None
        self._neglect(each)
        try:
            backup = self._backup(cell)
            self._kill(each, frozenset(cell.known - {str(each.pid)} | {str(backup)}))
            wait_status, cpu_s = self._ended.get(each.pid, (0, 0.0))
            assert cell.aside is not None
            cell.aside.put_back()
            messages.send(cell.backup, messages.BACK)
            self._ended.pop(each.pid, None)
            each.change_head(cell.backup, backup)
        except OSError:
            self._give_up(each, cell, reason)
            return
        cell.close_aside()
        each.cell = None
        self._attend(each)
        self._report(each, cell, reason, "rolled_back", wait_status, cpu_s)

    def _backup(self, cell: Cell) -> int:
        """The process that waits to go on in the place of the cell's.

        Raises:
            OSError: there is none.
        """
        if cell.hindrance or cell.aside is None or not cell.has_started:
            raise OSError(errno.ESRCH, "no way back was made")
        if not select.select((cell.backup,), (), (), _BACKUP_S)[0]:
            raise OSError(errno.ETIMEDOUT, "the way back does not answer")
        said, pid = member.heard(cell.backup)
        if said != head.READY or pid < 2:
            raise OSError(errno.ESRCH, "the way back is gone")
        return pid

    def _give_up(self, each: Member, cell: Cell, reason: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
        select.select((each.pidfd,), (), (), _BACKUP_S)
        self._reap()
        wait_status, cpu_s = self._ended.get(each.pid, (0, 0.0))
        self.remove(each)
        self._report(each, cell, reason, "lost", wait_status, cpu_s)

    def _report(
        self, each: Member, cell: Cell, reason: str, state: str, wait_status: int, cpu_s: float | None = None
    ) -> None:
        ended_s = time.monotonic()
        used_s = member.cpu_s(each.pid) if cpu_s is None else cpu_s
        resident = watch.resident_bytes(str(each.pid)) if cpu_s is None else 0
        outcome: CellOutcome = {
            "member": each.number,
            "cell": cell.order["cell"],
            "reason": reason,  # type: ignore[typeddict-item]
            "state": state,  # type: ignore[typeddict-item]
            "hindrance": cell.hindrance,
            "wait_status": wait_status,
            "started_s": cell.started_s or ended_s,
            "ended_s": ended_s,
            "cpu_s": max(0.0, used_s - cell.cpu_before_s),
            "peak_memory_bytes": max(resident, cell.watch.peak_bytes),
        }
        messages.send(self.channel, messages.CELL_ENDED, outcome)


def _has_ended(pidfd: int, patience_s: float = 0.0) -> bool:
    return bool(select.select((pidfd,), (), (), patience_s)[0])
