"""The process that the server starts for each call: enters the namespaces, leaves init in them, waits for it.

Started as `python -I -S -B -c BOOT BUNDLE JOB LIFELINE REPORT`, all descriptor numbers. The bundle (see `bundle`) goes
to the end of the import path: the jail's modules are a package of their own here, and hide none of the standard
library. Everything is imported before root is left, since nobody may not be able to read the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import enter, init, policy, syscalls
from .steps import StepError, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .frames import Job, Report

BOOT = "import sys; sys.path.append('/proc/self/fd/' + sys.argv[1]); from jail.launcher import main; main()"
_OOM_FIRST = b"1000"


def main() -> NoReturn:
    job_fd, lifeline, report_fd = (int(argument) for argument in sys.argv[2:5])
    for fd in (job_fd, lifeline, report_fd):
        os.set_inheritable(fd, False)
    with open(job_fd, encoding="utf-8") as file:
        job: Job = json.load(file)
    try:
        sources = leave_the_machine(job["binds"], job["namespaces"])
        pid = os.fork()
        if pid == 0:
            _report(report_fd, {"outcome": init.run(job, sources, lifeline)})
            os._exit(0)
    except StepError as error:
        _report(report_fd, {"failure": error.as_failure()})
        os._exit(1)
    _wait_for_init(pid, report_fd)


def leave_the_machine(binds: list[str], namespaces: int, inner_id: int = policy.INNER_ID) -> enter.Sources:
    """Become nobody in namespaces of one's own, there called `inner_id`.

    Raises:
        StepError: a step failed.
    """
    sources = enter.Sources(binds)
    perform(
        (
            ("out-of-memory score", _be_killed_first),
            ("open read-only folders as root", sources.open_as_root if os.geteuid() == 0 else _nothing),
            ("leave root", enter.leave_root),
            # Cleared by a change of user, hence after it.
            ("parent death signal", lambda: syscalls.set_parent_death_signal(signal.SIGKILL)),
            ("namespaces", lambda: enter.unshare_namespaces(inner_id, namespaces)),
        )
    )
    return sources


def _nothing() -> None:
    """A server that is a normal user has nothing that its programs' user may not open."""


def _be_killed_first() -> None:
    # When the machine itself runs out of memory, the kernel shall take a program and not the server.
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, _OOM_FIRST)
    os.close(fd)


def _report(report_fd: int, report: Report) -> None:
    with open(report_fd, "w", encoding="utf-8", closefd=False) as file:
        json.dump(report, file)


def _wait_for_init(pid: int, report_fd: int) -> NoReturn:
    """Init becomes waitable only when the last process of its namespace is gone; so the server can wait for us."""
    _, wait_status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(wait_status):
        message = f"init was ended by signal {os.WTERMSIG(wait_status)}"
        _report(report_fd, {"failure": {"step": "run", "errno": 0, "message": message}})
    os._exit(os.waitstatus_to_exitcode(wait_status) & 0xFF)
