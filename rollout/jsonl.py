"""Read JSON lines. Only a newline ends one: texts of models hold other ends of lines, such as U+2028."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError


def read_jsonl(file: Path) -> Iterator[tuple[Any, str]]:
    """Each value, and where it stands (`FILE:LINE`). Empty lines are passed over; no more is read than is asked for.

    Raises:
        ConfigError: the file cannot be read, or a line is not JSON.
    """
    try:
        with file.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _value(line, where := f"{file}:{number}"), where
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


def _value(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
