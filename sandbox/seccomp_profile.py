"""The seccomp profile of the sandbox's container, as Docker reads it: `python -m rollbox.sandbox.seccomp_profile`.

Docker's own profile lets nobody make a namespace. This one allows what libseccomp knows by name, except what no program
of ours may do either; of that it leaves the server the calls that jails are built with. `seccomp.json` beside this file
is its output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from .jail import policy

BUILDING = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "chroot"),
    *("sethostname", "memfd_create"),
)
"""Refused to programs, and needed to put them where they are."""
_ARCHITECTURES = {"SCMP_ARCH_X86_64": "X86_64", "SCMP_ARCH_AARCH64": "AARCH64"}
_MOST_NUMBERS = 600
_EPERM, _ENOSYS = 1, 38


def profile() -> dict[str, Any]:
    """The profile. What neither list names is answered with ENOSYS, after which libraries do without."""
    refused = sorted(set(policy.DENIED_SYSCALLS) - set(BUILDING))
    allowed = sorted((known_names() | set(policy.RECENT_SYSCALLS)) - set(refused))
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "archMap": [{"architecture": name, "subArchitectures": []} for name in _ARCHITECTURES],
        "syscalls": [
            {"names": allowed, "action": "SCMP_ACT_ALLOW"},
            {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
        ],
    }


def known_names() -> set[str]:
    """Names of the system calls of both architectures that the installed libseccomp knows."""
    import pyseccomp

    names: set[str] = set()
    for architecture in _ARCHITECTURES.values():
        for number in range(_MOST_NUMBERS):
            try:
                names.add(pyseccomp.resolve_syscall(getattr(pyseccomp.Arch, architecture), number).decode())
            except (ValueError, OSError):  # a gap
                continue
    return names


if __name__ == "__main__":
    json.dump(profile(), sys.stdout, indent=2)
    sys.stdout.write("\n")
