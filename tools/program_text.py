"""Reading programs as models write them, and tracebacks as they should be shown."""

from __future__ import annotations

import re

_FENCE = re.compile(r"\A\s*```[A-Za-z0-9_+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)
_FRAME = re.compile(r'^\s*(?:[|+-]\s*)*File "([^"]+)", line \d+')


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
