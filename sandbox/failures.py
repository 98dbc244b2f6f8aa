"""From a failed step of the jail to an error that says what can be done about it."""

from __future__ import annotations

import errno
import logging
import os

from ..schemas.errors import ErrorKind, SandboxError, ToolError
from .jail.frames import Failure

_logger = logging.getLogger(__name__)

_NO_NAMESPACES = (
    "unprivileged user namespaces are not allowed here: on Ubuntu set kernel.apparmor_restrict_unprivileged_userns=0, "
    "in Docker use a seccomp profile that allows them and security_opt systempaths=unconfined"
)
_REMEDIES = {
    "leave root": "run the server as a normal user, or leave it CAP_SETUID and CAP_SETGID",
    "namespaces": _NO_NAMESPACES,
    "slot namespaces": "user namespaces inside user namespaces are needed, or else --pool process",
    "private mounts": _NO_NAMESPACES,
    "new root": _NO_NAMESPACES,
    "proc": "in a container add security_opt systempaths=unconfined, so that /proc is fully visible",
    "open read-only folders": "install the interpreter where the server's user can read it; Linux 5.12 or newer",
    "attach read-only folders": "Linux 5.12 or newer is needed",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER is needed",
}


class NotStartedError(SandboxError):
    """The child that was to become the program was lost before it did: the same request may be run elsewhere."""


def explained(failure: Failure | None) -> SandboxError | ToolError:
    """The error to raise for a step that failed, or for a report that says nothing."""
    if failure is None:
        return SandboxError("the jail's report is empty")
    # The full text names paths of the host: for the log, not for the client.
    reason = os.strerror(failure["errno"]) if failure["errno"] else failure["message"]
    if "field" in failure:
        too_big = failure["errno"] == errno.ENOSPC
        remedy = "; it must fit in limits.work_dir_mb" if too_big else ""
        return ToolError(f"{failure['field']}: cannot be written: {reason}{remedy}", ErrorKind.ARGUMENTS)
    _logger.error("jail set-up failed at step %r: %s", failure["step"], failure["message"])
    remedy = _REMEDIES.get(failure["step"], "")
    text = f"the jail failed at step {failure['step']!r}: {reason}"
    kind = NotStartedError if failure["step"] == "ready child" else SandboxError
    return kind(f"{text}; {remedy}" if remedy else text)
