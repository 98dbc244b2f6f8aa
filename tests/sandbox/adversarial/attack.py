"""Attack: a small program that tries to do harm, and what it may get."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rollbox.schemas.run import RunLimits, RunRequest, RunResult

ERRNO_OF = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def errno_of(name, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*arguments)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def error_of(action):
    try:
        return f"done: {action()!r}"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
"""
"""Says `done` for a call that succeeded, else the name of its error."""


@dataclass(frozen=True)
class Attack:
    """Attributes:
    name: what is tried, as docs/sandbox.md lists it. `stopped_by`: what stops it, as there.
    code: the program; `PORT` in it is the server's port.
    got: asserts what the attacker got.
    before: a program that runs first, for what another run may leave or hold.
    fields: of the RunRequest. `limits`: of its RunLimits.
    """

    name: str
    stopped_by: str
    code: str
    got: Callable[[RunResult], None]
    before: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)

    def request(self, marker: str, port: int) -> RunRequest:
        code = self.code.replace("PORT", str(port))
        return RunRequest(code=code, args=[marker], limits=RunLimits(**self.limits), **self.fields)


def printed(text: str) -> Callable[[RunResult], None]:
    """It ended well, and printed just that."""

    def check(result: RunResult) -> None:
        assert (result.status, result.stdout) == ("ok", f"{text}\n"), result

    return check


def all_refused(*errors: str) -> Callable[[RunResult], None]:
    """It printed a JSON object, each value of which is one of `errors`."""

    def check(result: RunResult) -> None:
        assert result.status == "ok", result
        answers = json.loads(result.stdout)
        assert answers
        assert {name: answer for name, answer in answers.items() if answer not in errors} == {}, answers

    return check


def ended(*statuses: str, stderr: str = "") -> Callable[[RunResult], None]:
    """It was ended so, and its stderr matches."""

    def check(result: RunResult) -> None:
        assert result.status in statuses, result
        assert re.search(stderr, result.stderr), result

    return check


def killed_by(*signals: int) -> Callable[[RunResult], None]:
    """It died of one of these signals."""

    def check(result: RunResult) -> None:
        assert (result.status, result.exit_code) == ("error", None), result
        assert result.signal in signals, result

    return check
