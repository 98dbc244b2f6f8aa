"""How a family grows: copies of a member, made one after the other."""

from __future__ import annotations

import os
from contextlib import suppress

from . import head, member, messages, views
from .member import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .family import Family


class Copies:
    """Makes the copies that a member is asked for in its `forking`, all or none."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._spare: views.View | None = None

    def next(self, each: Member) -> None:
        """Begin with the next copy that is wanted, or report that all are there."""
        forking = each.forking
        assert forking is not None
        if not forking.wanted:
            self.report(each)
            return
        view, self._spare = self._spare, None
        try:
            view = view or views.empty_view(each.view.binds, self._family.work_dir_mb)
            views.fill(view, each.view)
        except OSError as error:
            if view is not None:
                view.close()
            forking.failure = error.strerror or str(error)
            self.report(each)
            return
        control, theirs = member.control_pair()
        forking.copy = (forking.wanted.pop(0), view, control)
        self._family.listen(control.fileno(), lambda: self._ready(each))
        with suppress(OSError):  # the head is gone, which is seen next
            messages.send(each.control, messages.FORK, None, (theirs, view.root))
        os.close(theirs)

    def _ready(self, each: Member) -> None:
        """A copy has said that it is there, or has ended before."""
        forking = each.forking
        if forking is None or forking.copy is None:
            return
        number, view, control = forking.copy
        try:
            said, pid = member.heard(control)
            new = Member(number, view, control, pid) if said == head.READY else None
        except BlockingIOError:
            return
        except OSError:
            new = None
        if new is None:
            self._family.heard(each)  # it may have said why
            if each.forking is forking:
                forking.failure = "the copy ended before it was ready"
                self.report(each)
            return
        self._family.forget(control.fileno())
        forking.copy = None
        forking.made.append(number)
        new.limits = each.limits
        self._family.add(new)
        self.next(each)

    def report(self, each: Member) -> None:
        """Report the copies that were made; after a failure they go again, as the whole was asked for."""
        forking = each.forking
        assert forking is not None
        each.forking = None
        if forking.copy is not None:
            _, view, control = forking.copy
            self._family.forget(control.fileno())
            control.close()
            view.close()
        if forking.failure is not None:
            for number in forking.made:
                if number in self._family.members:
                    self._family.remove(self._family.members[number])
        messages.send(self._family.channel, messages.FORKED, (each.number, forking.failure))
        if self._spare is None:
            # Who forks once forks again, and is not to wait for it then.
            with suppress(OSError):
                self._spare = views.empty_view(each.view.binds, self._family.work_dir_mb)
