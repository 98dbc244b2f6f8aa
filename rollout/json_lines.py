"""Read a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.surrogates import may_hold_surrogates, without_lone_surrogates


def json_lines(file: Path, *, may_be_cut: bool = False, mends: bool = False) -> Iterator[tuple[Any, str]]:
    """(value, FILE:LINE) of each line that is not blank.

    Args:
        may_be_cut: leave out a last line without its end: it was being written when its program was killed, or still
            is.
        mends: half a surrogate pair becomes U+FFFD: what a model wrote is to be scored, and written down again.

    Raises:
        ConfigError: the file cannot be read, or a line is not JSON.
    """
    try:
        # Only \n ends a line: a text may hold U+2028 and others at which `splitlines` would cut.
        with file.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not (may_be_cut and not line.endswith("\n")):
                    yield _value(line, f"{file}:{number}", mends), f"{file}:{number}"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


def _value(line: str, where: str, mends: bool) -> Any:
    try:
        value = json.loads(line)
        return without_lone_surrogates(value) if mends and may_hold_surrogates(line) else value
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
