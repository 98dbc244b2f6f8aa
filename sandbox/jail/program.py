"""Turn a fresh child of init into the program: limits, then no way to gain privilege, then execve. In order."""

from __future__ import annotations

import binascii
import math
import os
import resource
import signal

from . import policy, syscalls
from .steps import StepError, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .frames import Job, JobLimits

_ERRORS_FD = 3


def become(job: Job, errors: int) -> NoReturn:
    """Replace this process by the program. If that fails, write why to `errors` and end.

    A successful execve closes `errors` without a word: that is how init learns that the program has started.
    """
    _keep_only(errors)
    seccomp_filter = binascii.a2b_base64(job["seccomp"])
    try:
        perform(
            (
                # A session of its own: nothing that the program does to its process group reaches init.
                ("session", os.setsid),
                ("signals", _reset_signals),
                ("work dir", lambda: os.chdir(policy.WORK_DIR)),
                ("umask", lambda: os.umask(0o022)),
                ("resource limits", lambda: set_limits(job["limits"], policy.OWN_PROCESSES, inherited_limits())),
                ("capabilities", syscalls.drop_capabilities),
                # Required by the kernel before an unprivileged process may load a filter.
                ("no new privileges", syscalls.set_no_new_privileges),
                ("seccomp", lambda: _load(seccomp_filter)),
                ("execute", lambda: _execute(job)),
            )
        )
    except StepError as error:
        os.write(_ERRORS_FD, f"{error.errno}\n{error.step}\n{error.message}".encode())
    finally:
        os._exit(1)  # never back into init's code, whatever went wrong


def _load(seccomp_filter: bytes) -> None:
    if seccomp_filter:  # else the operator chose to do without
        syscalls.load_seccomp_filter(seccomp_filter)


def _execute(job: Job) -> NoReturn:
    os.execve(job["command"][0], job["command"], job["env"])  # noqa: S606 - no shell is wanted


def _keep_only(errors: int) -> None:
    os.dup2(errors, _ERRORS_FD, inheritable=False)
    os.closerange(_ERRORS_FD + 1, os.sysconf("SC_OPEN_MAX"))


def _reset_signals() -> None:
    # Python ignores SIGPIPE and SIGXFSZ, and an ignored signal stays ignored across execve.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def inherited_limits() -> dict[int, int]:
    """Hard limits that are set already: only root may raise one, so a stricter one stays.

    Of descriptors programs get half: those in flight are counted by user, and init must be able to send its own.
    """
    hard = {which: resource.getrlimit(which)[1] for which in _LIMITED}
    if hard[resource.RLIMIT_NOFILE] != resource.RLIM_INFINITY:
        hard[resource.RLIMIT_NOFILE] //= 2
    return {which: limit for which, limit in hard.items() if limit != resource.RLIM_INFINITY}


_LIMITED = (
    *(resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_DATA),
    *(resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_SIGPENDING),
)


def set_limits(limits: JobLimits, other_processes: int, inherited: dict[int, int]) -> None:
    """`other_processes` are those of ours that RLIMIT_NPROC counts too."""
    cpu_s = math.ceil(limits["cpu_s"])
    for which, soft, hard in (
        # SIGXCPU at the first, which a program may catch; SIGKILL at the second.
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_NPROC, limits["processes"] + other_processes, 0),
        # Private writable memory. The address space is left alone: BLAS and threads reserve far more than they use.
        (resource.RLIMIT_DATA, limits["memory_mb"] << 20, 0),
        (resource.RLIMIT_FSIZE, limits["file_size_mb"] << 20, 0),
        (resource.RLIMIT_NOFILE, limits["open_files"], 0),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_SIGPENDING, policy.PENDING_SIGNALS, 0),
    ):
        most = inherited.get(which)
        hard = hard or soft
        if most is not None:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))
