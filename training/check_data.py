"""Before a run: the rows of the data sets, as verl's trainer and the agent loops will read them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.trajectory import Sample
from .reachable_tools import SINGLE_TURN, TOOL_AGENT
from .settings import AGENT_LOOP
from .verl_data import read_rows
from .verl_rows import sample_of, selected_tools

_ROWS = 256


@dataclass(frozen=True, slots=True)
class DataRow:
    """A row of a data set.

    Attributes:
        name: for messages. columns: as the file has them. sample: what `rollbox_agent` makes of it.
    """

    name: str
    columns: Mapping[str, Any]
    sample: Sample


def data_rows(config: Any, key: str) -> list[DataRow]:
    """The first rows of each file of `data.{key}`: 256, or as many as a step takes where that is more.

    Raises:
        ConfigError: no file is named, one cannot be read, or a row is not as verl's are.
    """
    files = config.data[key]
    files = [files] if isinstance(files, str) else files
    if not isinstance(files, Sequence) or not files or not all(isinstance(file, str) for file in files):
        raise ConfigError(f"data.{key}: must name a parquet or JSONL file, or a list of some (got {files!r})")
    limit = max(_ROWS, _batch_size(config))
    prompt_key = config.data.get("prompt_key", "prompt")
    return [
        _data_row(columns, f"{number} of {file}", prompt_key)
        for file in files
        for number, columns in enumerate(read_rows(Path(file), f"data.{key}", limit))
    ]


def _batch_size(config: Any) -> int:
    size = config.data.train_batch_size
    if not isinstance(size, int) or size < 1:
        raise ConfigError(f"data.train_batch_size: must be a number of questions, at least 1 (got {size!r})")
    return size


def _data_row(columns: Any, name: str, prompt_key: str) -> DataRow:
    if not isinstance(columns, Mapping):
        raise ConfigError(f"row {name}: must hold named columns (got {type(columns).__name__})")
    if columns.get(prompt_key) is None:
        raise ConfigError(f"row {name}: no column {prompt_key!r}; data.prompt_key names the one with the prompt")
    return DataRow(name, columns, sample_of({**columns, "raw_prompt": columns[prompt_key], "uid": name}))


def check_batch_size(config: Any, rows: Sequence[DataRow]) -> None:
    """
    Raises:
        ConfigError: the training set is smaller than a step. verl would find out by a division by zero, after it has
            loaded everything.
    """
    wanted, most = _batch_size(config), int(config.data.get("train_max_samples", -1))
    found = len(rows) if most < 0 else min(len(rows), most)
    if found < wanted:
        raise ConfigError(
            f"data.train_batch_size: a step takes {wanted} questions and data.train_files has {found}; lower it "
            "(actor_rollout_ref.actor.ppo_mini_batch_size too) or add rows"
        )


def check_agent_names(rollout: Mapping[str, Any], rows: Iterable[DataRow], tool_names: tuple[str, ...]) -> None:
    """
    Raises:
        ConfigError: a row names an agent loop that is not registered, or a tool that is not loaded. Either would fail
            each of its trajectories.
    """
    agent = rollout.get("agent") or {}
    default = agent.get("default_agent_loop") or SINGLE_TURN
    known: set[str] = {SINGLE_TURN, TOOL_AGENT, AGENT_LOOP}
    for row in rows:
        name = row.columns.get("agent_name") or default
        if name not in known and agent.get("agent_loop_config_path") is None:
            known |= _registered()
            if name not in known:
                raise ConfigError(
                    f"row {row.name}: no agent loop {name!r} (column agent_name, or agent.default_agent_loop); there "
                    f"are: {', '.join(sorted(known))}. One of your own is registered by a module that "
                    "VERL_USE_EXTERNAL_MODULES names"
                )
        if name == AGENT_LOOP:
            _check_selection(row, tool_names)


def _check_selection(row: DataRow, tool_names: tuple[str, ...]) -> None:
    try:
        selected_tools(row.columns, tool_names)
    except ConfigError as error:
        raise ConfigError(f"row {row.name}: {error}") from error


def _registered() -> set[str]:
    """verl's agent loops, with those of the modules that every process of the run imports."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    for module in filter(None, map(str.strip, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(","))):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(f"VERL_USE_EXTERNAL_MODULES: cannot import {module!r}: {error}") from error
    return set(_agent_loop_registry)
