"""Metrics of a run by name, out of verl's console output, its JSONL file or TensorBoard's events."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...schemas.errors import ConfigError

Series = dict[str, list[tuple[int, float]]]
"""Metric -> (step, value), by step."""

_STEP = re.compile(r"\bstep:(\d+) - (.*)")
_VALUE = re.compile(r"(?:np\.\w+\()?(-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf))\)?", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_EVENTS = "events.out.tfevents."


def read_logs(path: Path) -> Series:
    """Every metric of a file, or of all log files in a directory and its folders.

    Raises:
        ConfigError: there is no metric, or TensorBoard's files are there and nothing that reads them is.
    """
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    found: dict[str, dict[int, float]] = {}
    for file in files:
        for step, name, value in _metrics(file):
            found.setdefault(name, {})[step] = value
    if not found:
        raise ConfigError(f"{path}: holds no metrics; it takes verl's console output, its JSONL file or TensorBoard's")
    return {name: sorted(values.items()) for name, values in found.items()}


def _metrics(file: Path) -> Iterator[tuple[int, str, float]]:
    if file.name.startswith(_EVENTS):
        yield from _tensorboard(file)
    elif file.suffix in (".jsonl", ".log", ".txt", ".out", ""):
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    yield from _json(line) if line.startswith("{") else _console(line)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error


def _console(line: str) -> Iterator[tuple[int, str, float]]:
    match = _STEP.search(_ANSI.sub("", line))
    if match is None:
        return
    for item in match.group(2).split(" - "):
        name, _, text = item.strip().rpartition(":")
        value = _VALUE.fullmatch(text)
        if name and value:
            yield int(match.group(1)), name, float(value.group(1))


def _json(line: str) -> Iterator[tuple[int, str, float]]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return
    step, data = row.get("step"), row.get("data")
    if isinstance(step, int) and not isinstance(step, bool) and isinstance(data, dict):
        for name, value in data.items():
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                yield step, name, _float(value)


def _float(value: float | None) -> float:
    if value is None:  # orjson writes NaN so
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _tensorboard(file: Path) -> Iterator[tuple[int, str, float]]:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise ConfigError(f"{file}: reading it needs tensorboard: pip install tensorboard") from error
    events = EventAccumulator(str(file), size_guidance={"scalars": 0})
    events.Reload()
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            yield event.step, name, event.value
