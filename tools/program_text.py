"""Reading programs as models write them, and tracebacks as they should be shown."""

from __future__ import annotations

import re
from typing import Any

from ..schemas.errors import ErrorKind, ToolError

_FENCE = re.compile(r"\A\s*```[A-Za-z0-9_+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)
_FRAME = re.compile(r'^\s*(?:[|+-]\s*)*File "([^"]+)", line \d+')


def program_of(parameters: Any, name: str) -> str:
    """The argument that holds the program, without a fence around it.

    Raises:
        ToolError: (kind `arguments`) it is missing or blank.
    """
    program = parameters.get(name) if isinstance(parameters, dict) else None
    if not isinstance(program, str) or not program.strip():
        raise ToolError(f"Wrong arguments: {name!r} must be a non-empty string.", ErrorKind.ARGUMENTS)
    return strip_fence(program)


def strip_fence(code: str) -> str:
    """Take the Markdown fence off a program that is nothing but one fenced block."""
    match = _FENCE.match(code)
    return match.group(1) if match and "```" not in match.group(1) else code


def own_traceback(stderr: str, work_dir: str = "/workspace/") -> str:
    """Leave out the frames of a Python traceback that are not the program's own.

    The file name in the frames that stay loses the work dir, so that the model reads `main.py`.
    """
    kept: list[str] = []
    skipping = False
    for line in stderr.rstrip().splitlines():
        frame = _FRAME.match(line)
        if frame:
            name = frame.group(1)
            skipping = not name.startswith((work_dir, "<string>", "<cell "))
        elif not line.startswith("    "):
            skipping = False
        if not skipping:
            kept.append(line.replace(work_dir, "") if frame else line)
    return "\n".join(kept)
