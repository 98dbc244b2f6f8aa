"""Fences come off programs; foreign frames come out of tracebacks."""

from __future__ import annotations

import pytest

from rollbox.tools.program_text import own_traceback, strip_fence


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```\nprint(1)\n```\n", "print(1)"),
        ("  ```py\nfor i in range(2):\n    print(i)\n```", "for i in range(2):\n    print(i)"),
        ("print(1)", "print(1)"),
        ("print('```')", "print('```')"),
        ("```python\na\n```\nb\n```python\nc\n```", "```python\na\n```\nb\n```python\nc\n```"),
    ],
)
def test_strip_fence(text: str, program: str) -> None:
    assert strip_fence(text) == program


def test_only_own_frames_stay() -> None:
    stderr = (
        "Traceback (most recent call last):\n"
        '  File "/workspace/main.py", line 2, in <module>\n'
        '    json.loads("x")\n'
        '  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads\n'
        "    return _default_decoder.decode(s)\n"
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
    )
    assert own_traceback(stderr) == (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 2, in <module>\n'
        '    json.loads("x")\n'
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    )


def test_chained_exceptions_and_other_text_stay() -> None:
    stderr = "a warning\nTraceback (most recent call last):\nKeyError: 1\n\nDuring handling of it:\n\nValueError: 2"
    assert own_traceback(stderr) == stderr
