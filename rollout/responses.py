"""Responses that are there already: the trajectories of a run, or texts beside a data file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..rewards.trajectory import trajectory_of_text
from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample, Trajectory
from ..schemas.validation import validated
from .json_lines import json_lines
from .report.files import TRAJECTORIES

_TEXT_KEYS = ("response", "solution_str", "output", "answer")


def read_trajectories(path: Path) -> list[Trajectory]:
    """The trajectories of a run's directory, or of a JSONL file of them. A last line that is cut is left out.

    Raises:
        ConfigError: there are none, or a line is none.
    """
    file = path / TRAJECTORIES if path.is_dir() else path
    found = [validated(Trajectory, data, where) for data, where in json_lines(file, may_be_cut=True, mends=True)]
    if not found:
        raise ConfigError(f"{file}: holds no trajectories")
    return found


def read_responses(file: Path, samples: Sequence[Sample]) -> list[Trajectory]:
    """The answers of a JSONL file to samples, several for one where it has them.

    A line is `{"id" or "sample_id", "response" or "solution_str"}`, or a trajectory of a run. Without ids the lines are
    in the order of the samples.

    Raises:
        ConfigError: a line is wrong, or belongs to no sample.
    """
    by_id = {sample.sample_id: sample for sample in samples}
    seen: Counter[str] = Counter()
    found: list[Trajectory] = []
    for number, (data, where) in enumerate(json_lines(file, mends=True)):
        if isinstance(data, dict) and "trajectory_id" in data:
            found.append(validated(Trajectory, data, where))
            continue
        sample = _sample(data, where, number, samples, by_id)
        text = next((data[key] for key in _TEXT_KEYS if isinstance(data.get(key), str)), None)
        if text is None:
            raise ConfigError(f"{where}: has none of {', '.join(map(repr, _TEXT_KEYS))} as a text")
        found.append(trajectory_of_text(sample, text, f"{sample.sample_id}.{seen[sample.sample_id]}"))
        seen[sample.sample_id] += 1
    if not found:
        raise ConfigError(f"{file}: holds no responses")
    return found


def _sample(data: Any, where: str, number: int, samples: Sequence[Sample], by_id: dict[str, Sample]) -> Sample:
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: must be an object (got {type(data).__name__})")
    name = data.get("sample_id", data.get("id"))
    if name is None:
        if number >= len(samples):
            raise ConfigError(f"{where}: has no 'id', and there are only {len(samples)} samples")
        return samples[number]
    if str(name) not in by_id:
        known = ", ".join(map(repr, list(by_id)[:3]))
        raise ConfigError(f"{where}: there is no sample {name!r} in the data; there are {len(by_id)}, such as {known}")
    return by_id[str(name)]
