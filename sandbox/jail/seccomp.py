"""Compile the system-call policy to a BPF program: once, in the server. Inside a call the bytes are only loaded."""

from __future__ import annotations

import errno
import os
from typing import Any

from ...schemas.errors import ConfigError
from . import policy

_ALL_PROCESSES = 0xFFFF_FFFF  # -1 as the kernel reads a process id, in 32 bits


def compile_filter(*, for_sessions: bool = False) -> bytes:
    """The filter of `policy` as BPF instructions.

    Args:
        for_sessions: allow what copies of a session need, and refuse to signal all processes at once: the state to
            go back to is one of them.

    A call of another architecture (i386, x32) ends the program: its numbers mean other calls.

    Raises:
        ConfigError: libseccomp cannot be loaded.
    """
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        remedy = "install the system package libseccomp2 and `rollbox[server]`"
        raise ConfigError(f"seccomp: libseccomp cannot be loaded ({error}); {remedy}") from error
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refused, absent = pyseccomp.ERRNO(errno.EPERM), pyseccomp.ERRNO(errno.ENOSYS)
    for name in policy.DENIED_SYSCALLS:
        if not for_sessions or name not in policy.SESSION_SYSCALLS:
            rules.add_rule(refused, _number(pyseccomp, name))
    if for_sessions:
        rules.add_rule(refused, "kill", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _ALL_PROCESSES, _ALL_PROCESSES))
    for name in policy.ABSENT_SYSCALLS:
        rules.add_rule(absent, _number(pyseccomp, name))
    for flag in policy.NAMESPACE_FLAGS.values():
        rules.add_rule(refused, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    rules.add_rule(refused, "prctl", _is(pyseccomp, 0, policy.PR_SET_DUMPABLE))
    rules.add_rule(refused, "ioctl", _is(pyseccomp, 1, policy.TIOCSTI))
    rules.add_rule(refused, "prlimit64", _is(pyseccomp, 0, policy.INIT_PID))
    for option in policy.BUFFER_SIZE_OPTIONS:
        at = (_is(pyseccomp, 1, policy.SOL_SOCKET), _is(pyseccomp, 2, option))
        rules.add_rule(pyseccomp.ERRNO(0), "setsockopt", *at)
    _refuse_socket_families(pyseccomp, rules, refused)
    return _exported(rules)


def _is(pyseccomp: Any, argument: int, value: int) -> Any:
    """Compare 32 bits, which are all that the kernel reads of an int: a program can set the upper ones to anything."""
    return pyseccomp.Arg(argument, pyseccomp.MASKED_EQ, 0xFFFF_FFFF, value)


def _number(pyseccomp: Any, name: str) -> int:
    number = policy.RECENT_SYSCALLS.get(name)
    return number if number is not None else int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))


def _refuse_socket_families(pyseccomp: Any, rules: Any, refused: int) -> None:
    for family in set(range(policy.SOCKET_FAMILY_MAX)) - set(policy.SOCKET_FAMILIES):
        rules.add_rule(refused, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    rules.add_rule(refused, "socket", pyseccomp.Arg(0, pyseccomp.GT, policy.SOCKET_FAMILY_MAX))
    netlink = pyseccomp.Arg(0, pyseccomp.EQ, policy.NETLINK)
    rules.add_rule(refused, "socket", netlink, pyseccomp.Arg(2, pyseccomp.NE, policy.NETLINK_ROUTE))
    unsupported = pyseccomp.ERRNO(errno.EPROTONOSUPPORT)
    for family in policy.INTERNET_FAMILIES:
        other = pyseccomp.Arg(2, pyseccomp.GT, policy.INTERNET_PROTOCOL_MAX)
        rules.add_rule(unsupported, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family), other)


def _exported(rules: Any) -> bytes:
    with open(os.memfd_create("seccomp"), "r+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
