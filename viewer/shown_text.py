"""Text that nobody vouches for, made fit to be shown: escaped, its control characters visible, long ones folded.

What a model or a program writes can hold markup, terminal codes, NULs, marks that turn the direction of writing, and
megabytes. None of it may act on the page, and none of it may be hidden by it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from markupsafe import Markup, escape

_HEAD_CHARS = 1600
_HEAD_LINES = 24
_MOST_CHARS = 60_000
# C0 without tab and newline, DEL and C1, marks of direction, and characters of no width that hide in words.
_ODD = re.compile("([\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff])\\1*")
_CONTROLS = (
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
)
_NEWLINE = Markup('<span class="nl">↵</span>\n')
_THINKING = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Folded:
    """Text in two parts: what is seen at once, and what unfolds.

    Attributes:
        more_chars, more_lines: size of `more`. cut_chars: what is not sent at all; the raw line has it.
    """

    head: Markup
    more: Markup | None = None
    more_chars: int = 0
    more_lines: int = 0
    cut_chars: int = 0


def shown(text: str) -> Markup:
    """Escape a text; control characters and direction marks become visible signs that only stand there."""
    return Markup(_ODD.sub(_sign, str(escape(text))))  # noqa: S704 - it is escaped here


def shown_with_newlines(text: str) -> Markup:
    """The same, with a sign before each newline: the text may be nothing else."""
    return _NEWLINE.join(shown(line) for line in text.split("\n"))


def folded(text: str, head_chars: int = _HEAD_CHARS, head_lines: int = _HEAD_LINES) -> Folded:
    """Fold a text that is long in characters or in lines. At most `_MOST_CHARS` of it are shown at all."""
    cut = _fold_at(text, head_chars, head_lines)
    if cut >= len(text):
        return Folded(shown(text))
    more = text[cut:_MOST_CHARS]
    lines = more.count("\n") + 1
    return Folded(shown(text[:cut]), shown(more), len(more), lines, max(0, len(text) - _MOST_CHARS))


def thinking_apart(text: str) -> list[tuple[bool, str]]:
    """Split at `<think>` and `</think>`: (is thinking, text) in order, without the marks and without empty parts."""
    parts: list[tuple[bool, str]] = []
    if "<think>" not in text and "</think>" in text:
        # Templates can open the thinking in the prompt.
        inside, _, text = text.partition("</think>")
        parts.append((True, inside.strip("\n")))
    end = 0
    for found in _THINKING.finditer(text):
        parts += [(False, text[end : found.start()]), (True, found[1])]
        end = found.end()
    parts.append((False, text[end:]))
    return [(thinks, part.strip("\n")) for thinks, part in parts if part.strip()]


def _fold_at(text: str, chars: int, lines: int) -> int:
    """Where to fold: after whole lines where that doesn't leave too little, never to hide a few words only."""
    at = min(len(text), chars)
    position = -1
    for _ in range(lines):
        position = text.find("\n", position + 1, at)
        if position < 0:
            break
    else:
        at = position + 1
    if at < len(text) and (line_end := text.rfind("\n", at // 2, at)) >= 0:
        at = line_end + 1
    few = len(text) - at < chars // 4 and text.count("\n", at) < lines // 4
    return len(text) if few else at


def _sign(found: re.Match[str]) -> str:
    char, number = found[1], len(found[0])
    code = ord(char)
    sign = _CONTROLS[code] if code < 0x20 else "DEL" if code == 0x7F else f"U+{code:04X}"
    times = f"×{number:,}" if number > 1 else ""
    name = unicodedata.name(char, f"control character U+{code:04X}").lower()
    return f'<span class="odd" title="{name}">{sign}{times}</span>'
