"""A member of a family, as init knows it: a session or a copy of one, and the cell that runs in it."""

from __future__ import annotations

import os
import time
from _socket import AF_UNIX, SO_PASSCRED, SOCK_SEQPACKET, SOL_SOCKET, socket, socketpair

from . import policy, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .frames import CellOrder
    from .views import Aside, View

_CREDENTIALS_BYTES, _SCM_CREDENTIALS = 12, 2
_SAID_BYTES = 16
_CMSG_SPACE = 32  # of credentials: nothing else fits, so that descriptors that a program sends are not taken
_TICKS = os.sysconf("SC_CLK_TCK")


def control_pair() -> tuple[socket, int]:
    """Init's end of a new control socket, and the descriptor of the other, which is a head's."""
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    return control(ours), theirs.detach()


def control(ours: socket) -> socket:
    """Have the kernel say who sent what: not all who can write to a control socket are a head."""
    ours.setsockopt(SOL_SOCKET, SO_PASSCRED, 1)
    ours.setblocking(False)
    return ours


def heard(ours: socket) -> tuple[bytes, int]:
    """A few bytes from a head, and the process that sent them. No bytes: nobody is left to send any.

    Raises:
        BlockingIOError: there are none now.
    """
    data, ancillary, _, _ = ours.recvmsg(_SAID_BYTES, _CMSG_SPACE)
    for _, kind, content in ancillary:
        if kind == _SCM_CREDENTIALS and len(content) >= _CREDENTIALS_BYTES:
            return data, int.from_bytes(content[:4], "little")
    return data, 0


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, and of those children that it has waited for; 0 if it is gone."""
    try:
        # The clock of another process, as clock_getcpuclockid(3) makes it.
        own_s = time.clock_gettime((~pid << 3) | 2)
        fields = watch.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return own_s + (int(fields[13]) + int(fields[14])) / _TICKS
    except (OSError, IndexError):
        return 0.0


class Member:
    """
    Attributes:
        number: which the server gave it. pid: of its head.
        idle_cpu_s: CPU seconds of its processes when it was last looked at without a cell.
    """

    def __init__(self, number: int, view: View, control: socket, pid: int) -> None:
        self.number = number
        self.view = view
        self.control = control
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.cell: Cell | None = None
        self.forking: Forking | None = None
        self.limits: tuple[float, int] | None = None
        """CPU seconds and bytes of memory that its last cell was allowed."""
        self.idle_cpu_s: float | None = None
        self.look_s = 0.0
        """When it is to be looked at next."""
        self.plan_look(time.monotonic())

    def plan_look(self, now_s: float) -> None:
        if self.cell is not None:
            self.look_s = min(now_s + policy.WATCH_INTERVAL_S, self.cell.deadline_s)
        elif self.forking is not None:
            self.look_s = self.forking.deadline_s
        else:
            self.look_s = now_s + policy.IDLE_WATCH_INTERVAL_S

    def change_head(self, control: socket, pid: int) -> None:
        self.close_head()
        self.control, self.pid, self.pidfd = control, pid, os.pidfd_open(pid)

    def close_head(self) -> None:
        self.control.close()
        os.close(self.pidfd)


class Cell:
    """A cell that was given to a head.

    Attributes:
        known: processes of the member from before the cell.
        backup: control socket of the way back; closed, which ends it, as soon as it is not needed.
        deadline_s: by when the head must have started it, then by when it must have ended.
        reason: set once the cell is being ended. is_unwanted: it is to be ended as soon as it has started.
    """

    def __init__(self, order: CellOrder, backup: socket, aside: Aside | None, hindrance: bytes, member: Member) -> None:
        self.order = order
        self.backup = backup
        self.aside = aside
        self.hindrance = hindrance
        self.known: set[str] = set()
        self.cpu_before_s = cpu_s(member.pid)
        self.started_s = 0.0
        self.deadline_s = 0.0
        self.reason: str | None = None
        self.is_unwanted = False
        self.watch: watch.MemoryWatch

    @property
    def has_started(self) -> bool:
        return self.started_s > 0

    def close(self) -> None:
        """Give up the way back, if there is one still."""
        self.backup.close()
        self.close_aside()

    def close_aside(self) -> None:
        if self.aside is not None:
            self.aside.close()
            self.aside = None


class Forking:
    """Copies that are being made of a member, one after the other.

    Attributes:
        wanted: numbers of those to make. made: numbers of those made.
        copy: the one that is being made: its number, its view and the control socket of its head.
        failure: why the rest was not made: a hindrance, or what the kernel said.
    """

    def __init__(self, wanted: list[int], deadline_s: float) -> None:
        self.wanted = wanted
        self.made: list[int] = []
        self.copy: tuple[int, View, socket] | None = None
        self.failure: bytes | str | None = None
        self.deadline_s = deadline_s
