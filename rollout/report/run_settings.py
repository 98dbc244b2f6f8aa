"""`run.json`: what makes it the same run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...schemas.errors import ConfigError

SETTINGS = "run.json"
SERVED = "served"
"""The key of what is known only once the engine runs: which model it is, and how it is prompted."""

_ADVICE = "give another --out, or --restart to throw that run away"


def read_settings(directory: Path) -> dict[str, Any]:
    """
    Raises:
        ConfigError: they cannot be read.
    """
    try:
        found = json.loads((directory / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"out: {directory} has trajectories but no readable {SETTINGS}; {_ADVICE}")
    return found


def check_same(directory: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """
    Raises:
        ConfigError: they differ; each difference is named.
    """
    changed = list(_differences(before, json.loads(json.dumps(now))))
    if changed:
        raise ConfigError(f"out: {directory} holds a run with other settings ({'; '.join(changed)}); {_ADVICE}")


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{path}{name}.")
        elif old != new:
            yield f"{path}{name} was {old!r}, now {new!r}"
