"""Put a reward together from the parts that a rewards file names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from ..schemas.errors import ConfigError, InfraError
from ..schemas.reward_config import (
    ApiPart,
    CallCostPart,
    OutcomePart,
    RewardConfig,
    RewardModelPart,
    RubricPart,
    StepsPart,
)
from ..schemas.strict_yaml import load_yaml
from ..schemas.trajectory import Rewards, Sample, Trajectory
from ..schemas.validation import validated
from . import registry
from .modules import load_reward_modules
from .part_kinds import scorer_for
from .parts import Measured, clipped, optimal_calls, sum_of
from .placement import placed
from .registry import REGISTRY, ScoreEntry, matches
from .sandbox_access import ScoringSandbox
from .side_by_side import side_by_side

_MAY_WAIT = (OutcomePart, ApiPart, RewardModelPart, RubricPart, StepsPart)


class RewardComposition:
    """The reward of a rewards file. An async context manager: connections, models and a sandbox belong to it.

    Rewards of rules alone can be used without entering it.

    Raises:
        ConfigError: the file names functions, modules or parts that there are not.
    """

    def __init__(self, config: RewardConfig, beside: Path | None = None) -> None:
        """
        Args:
            beside: the folder that the user's files are relative to.
        """
        self.config = config
        self._modules = load_reward_modules(config.modules, beside)
        self._check_names()
        self._sandbox = ScoringSandbox(config.sandbox_url)
        self._scorers = {name: scorer_for(name, part, self.outcome_for) for name, part in config.parts.items()}
        self._waves = _waves(config)
        self._stack = AsyncExitStack()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a rewards file.

        Raises:
            ConfigError: it cannot be read, or is wrong; the message names file and field.
        """
        file = Path(path)
        config = validated(RewardConfig, _yaml_of(file), str(file))
        try:
            return cls(config, file.parent)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from error

    async def __aenter__(self) -> Self:
        """
        Raises:
            ConfigError, InfraError: a model or server that a part needs is not there.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._sandbox)
            for scorer in self._scorers.values():
                if isinstance(scorer, AbstractAsyncContextManager):
                    await stack.enter_async_context(scorer)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def outcome_for(self, data_source: str) -> ScoreEntry:
        """The score function of a data source: what `outcomes` chooses, or else the registry's.

        Raises:
            ConfigError: there is none.
        """
        chosen = outcome_choice(self.config.outcomes, data_source)
        return registry.outcome_for(data_source) if chosen is None else REGISTRY.find(self.config.outcomes[chosen])

    def check_samples(self, samples: Iterable[Sample]) -> None:
        """Find out before the run whether every sample can be scored.

        Raises:
            ConfigError: as `registry.check_samples`, or `extra_info` does not hold what a part reads there.
        """
        given = list(samples)
        for part in self.config.parts.values():
            mine = [sample for sample in given if _applies(part.data_sources, sample.data_source)]
            if isinstance(part, CallCostPart) and not part.of_group:
                for sample in mine:
                    optimal_calls(part, sample)
            if isinstance(part, OutcomePart):
                function = part.function
                find = self.outcome_for if function is None else lambda _, name=function: REGISTRY.find(name)
                registry.check_samples(mine, find)

    def entries_of_user(self, data_sources: Iterable[str]) -> list[ScoreEntry]:
        """The score functions that are not Rollbox's: all of the file's modules, and others that score these sources.

        Raises:
            ConfigError: a data source has none.
        """
        files = {module.__file__ for module in self._modules}
        found = {entry.pattern: entry for entry in REGISTRY.entries() if entry.file in files}
        found |= {entry.pattern: entry for entry in self.entries_used(data_sources) if not entry.is_built_in}
        return [found[pattern] for pattern in sorted(found)]

    def entries_used(self, data_sources: Iterable[str]) -> list[ScoreEntry]:
        """The score functions that score these sources, some of them more than once.

        Raises:
            ConfigError: a data source has none.
        """
        sources, found = list(data_sources), list[ScoreEntry]()
        for part in self.config.parts.values():
            if isinstance(part, OutcomePart):
                mine = [source for source in sources if _applies(part.data_sources, source)]
                found += map(self.outcome_for, mine) if part.function is None else [REGISTRY.find(part.function)]
        return found

    async def score(self, trajectory: Trajectory) -> Rewards | None:
        """Score the model's own words and calls; tool output is never read as an answer.

        Returns:
            None for a trajectory that failed through our fault: it must be masked, not scored 0.

        Raises:
            ConfigError: the sample cannot be scored.
            InfraError: scoring failed through us, or a part is NaN or infinite; the message names it.
        """
        if trajectory.infra_failed:
            return None
        self._sandbox.use()
        measured: dict[str, Measured] = {}
        for wave in self._waves:
            mine = [name for name in wave if self._counts(name, trajectory, measured)]
            waiting = [name for name in mine if isinstance(self.config.parts[name], _MAY_WAIT)]
            if len(waiting) > 1:
                found: list[Measured] = await side_by_side(self._scorers[name](trajectory) for name in waiting)
                measured.update(zip(waiting, found, strict=True))
            for name in mine:
                if name not in measured:  # a task each would cost more than these do
                    measured[name] = await self._scorers[name](trajectory)
        return self._composed(trajectory, measured)

    async def measure(self, name: str, trajectory: Trajectory) -> Measured | None:
        """One part alone, whatever its gate says; None where it is left out for the data source.

        Raises: as `score`.
        """
        if not _applies(self.config.parts[name].data_sources, trajectory.sample.data_source):
            return None
        self._sandbox.use()
        return await self._scorers[name](trajectory)

    def _counts(self, name: str, trajectory: Trajectory, measured: Mapping[str, Measured]) -> bool:
        part = self.config.parts[name]
        if not _applies(part.data_sources, trajectory.sample.data_source):
            return False
        gate = part.only_if
        if gate is None or name in self.config.group_parts:  # whose calls count for the others, gate or not
            return True
        by = measured.get(gate.part)
        if by is None:
            return False
        return gate.is_open(sum_of(clipped(self.config.parts[gate.part], value) for value in by.values.values()))

    def _composed(self, trajectory: Trajectory, measured: Mapping[str, Measured]) -> Rewards:
        parts: dict[str, float] = {}
        raw: dict[str, float] = {}
        somewhere: list[tuple[int, float]] = []
        correct: bool | None = None
        for name, part in self.config.parts.items():
            if name not in measured:
                if _applies(part.data_sources, trajectory.sample.data_source):
                    parts[name] = raw[name] = 0.0  # its gate is shut
                continue
            found, weight = measured[name], self.config.weight_of(name)
            for full_name, value in found.values.items():
                _check_finite(full_name, value, trajectory)
                raw[full_name] = clipped(part, value)
                parts[full_name] = weight * raw[full_name]
                _check_finite(full_name, parts[full_name], trajectory)
            for full_name, value in found.logged.items():
                _check_finite(full_name, value, trajectory)
                raw[full_name] = value
            somewhere += [(position, weight * value) for position, value in found.placed]
            correct = found.correct if correct is None else correct
        total = sum_of(parts.values())
        if self.config.clip is not None:
            total = min(max(total, self.config.clip[0]), self.config.clip[1])
            parts["clip"] = total - sum_of(parts.values())
        _check_finite("total", total, trajectory)
        places = placed(trajectory, total, somewhere)
        return Rewards(total=total, parts=parts, raw=raw, correct=correct, placed=places)

    def _check_names(self) -> None:
        registry.load_built_in()
        for pattern, name in self.config.outcomes.items():
            _check_function(name, f"outcomes.{pattern}")
        for name, part in self.config.parts.items():
            if isinstance(part, OutcomePart) and part.function is not None:
                _check_function(part.function, f"parts.{name}.function")


def outcome_choice(outcomes: Iterable[str], data_source: str) -> str | None:
    """The pattern of a rewards file's `outcomes` that a data source goes by; None where none fits."""
    fits = [pattern for pattern in outcomes if matches(pattern, data_source)]
    return max(fits, key=lambda pattern: (pattern == data_source, len(pattern)), default=None)


def _check_function(name: str, where: str) -> None:
    try:
        REGISTRY.find(name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_finite(name: str, value: float, trajectory: Trajectory) -> None:
    if not math.isfinite(value):
        raise InfraError(f"reward part {name!r} of trajectory {trajectory.trajectory_id} is {value}")


def _applies(patterns: Iterable[str], data_source: str) -> bool:
    return any(matches(pattern, data_source) for pattern in patterns)


def _waves(config: RewardConfig) -> list[list[str]]:
    """Parts that can be scored side by side; a part's gate lies in an earlier wave."""
    waves: list[list[str]] = []
    waiting, done = list(config.parts), set[str]()
    while waiting:
        wave = [name for name in waiting if (gate := config.parts[name].only_if) is None or gate.part in done]
        waves.append(wave)
        done |= set(wave)
        waiting = [name for name in waiting if name not in done]
    return waves


def _yaml_of(file: Path) -> Any:
    try:
        data = load_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: must hold a mapping with the key 'parts' (got {type(data).__name__})")
    return data
