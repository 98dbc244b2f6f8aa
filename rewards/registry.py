"""Score functions by `data_source`: registered by a decorator, found by the longest pattern."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..schemas.errors import ConfigError, InfraError, RollboxError
from ..schemas.trajectory import Sample
from ..user_functions.own_threads import OwnThreads
from .score import Score, as_score

F = TypeVar("F", bound=Callable[..., Any])
ScoreFunction = Callable[..., Any]
"""(solution_str, ground_truth, extra_info) -> number, `Score` or verl's dictionary; or a coroutine of one."""
Check = Callable[[str], object]
"""Raises `ConfigError` for a ground truth that cannot be read."""

TIMEOUT_S = 600.0
"""Seconds for a plain score function. One that scores much at a time is waited for; one that hangs is not."""
AT_A_TIME = 32
"""Threads of one function."""
_BUILT_IN = ("gsm8k", "math_answer", "competition_math", "code_tests", "search_qa", "multiple_choice")


@dataclass(frozen=True, slots=True)
class Fixture:
    """An example that a score function must score so. `expected` is exact to 1e-9.

    Raises:
        ConfigError: an answer or a ground truth is no text, or the reward no finite number, which any score would fit.
    """

    solution_str: str
    ground_truth: str
    expected: float
    extra_info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("solution_str", "ground_truth"):
            if not isinstance(value := getattr(self, name), str):
                raise ConfigError(f"Fixture.{name}: must be text (got {value!r})")
        if not isinstance(self.expected, int | float) or not math.isfinite(self.expected):
            raise ConfigError(f"Fixture.expected: must be a finite number (got {self.expected!r})")
        if not isinstance(self.extra_info, Mapping):
            raise ConfigError(f"Fixture.extra_info: must be a mapping (got {self.extra_info!r})")


@dataclass(frozen=True, slots=True)
class ScoreEntry:
    """One registered function.

    Attributes:
        pattern: a data source, or the start of some with `*` at its end. `*` alone is the default.
        place: FILE:LINE of the function.
        inline: it is quick enough to run on the event loop; others that are not coroutines run in threads of their own.
        timeout_s: after so long a call in a thread is left alone, and the trajectory is masked.
        check: see `Check`; None accepts any text.
        fixtures: for `rollbox reward verify`.
    """

    pattern: str
    function: ScoreFunction
    place: str
    inline: bool = False
    check: Check | None = None
    fixtures: Sequence[Fixture] = ()
    timeout_s: float = TIMEOUT_S
    _threads: OwnThreads = field(default_factory=partial(OwnThreads, AT_A_TIME), init=False, repr=False, compare=False)

    async def __call__(
        self, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None
    ) -> Score:
        """Score one answer.

        Raises:
            ConfigError: the ground truth cannot be read.
            InfraError: the function failed, did not end in time, or returned something that is no score.
        """
        arguments = (solution_str, ground_truth, dict(extra_info or {}))
        try:
            if self.inline:
                result = self.function(*arguments)
                if inspect.isawaitable(result):
                    result = await result
            else:
                result = await self._threads.call(self.described, partial(self.function, *arguments), self.timeout_s)
        except RollboxError:
            raise
        except Exception as error:
            raise InfraError(f"{self.described} raised {type(error).__name__}: {error}") from error
        return as_score(result, self.described)

    @property
    def file(self) -> str:
        """The function's file, or its module where it has none."""
        return self.place.rpartition(":")[0] or self.place

    @property
    def is_built_in(self) -> bool:
        """Whether Rollbox brings it."""
        return Path(self.file).parent == Path(__file__).parent

    @property
    def described(self) -> str:
        return f"score {self.pattern!r} ({self.place})"


class ScoreRegistry:
    """Patterns and their functions. One is shared by the whole process: `REGISTRY`."""

    def __init__(self) -> None:
        self._entries: dict[str, ScoreEntry] = {}

    def score(
        self,
        *patterns: str,
        inline: bool = False,
        check: Check | None = None,
        fixtures: Sequence[Fixture] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> Callable[[F], F]:
        """Decorator: register a function for data sources.

        Args:
            patterns: data sources, or starts of some with `*` at the end. The longest that fits wins, a whole name
                before any start.
            inline, check, fixtures, timeout_s: see `ScoreEntry`.

        Raises:
            ConfigError: a pattern is taken, or is none, or a fixture is none.
        """

        def register(function: F) -> F:
            if not function.__module__.startswith(f"{__package__}."):
                load_built_in()  # so that a name of ours is taken before a user's module is read
            for pattern in patterns:
                self._add(ScoreEntry(pattern, function, place_of(function), inline, check, fixtures, timeout_s))
            return function

        return register

    def _add(self, entry: ScoreEntry) -> None:
        if not entry.pattern or "*" in entry.pattern[:-1]:
            raise ConfigError(f"{entry.place}: score pattern {entry.pattern!r}: a data source, with * only at its end")
        if not entry.timeout_s > 0:  # also where it is not a number
            raise ConfigError(f"{entry.described}: timeout_s: must be more than 0 seconds (got {entry.timeout_s!r})")
        odd = next((item for item in entry.fixtures if not isinstance(item, Fixture)), None)
        if odd is not None:
            raise ConfigError(f"{entry.described}: fixtures: must be Fixture(answer, truth, reward) (got {odd!r})")
        taken = self._entries.get(entry.pattern)
        if taken is not None and taken.place != entry.place:
            raise ConfigError(
                f"score {entry.pattern!r} is registered twice: at {taken.place} and at {entry.place}; give one another "
                "name, and choose it for the data source in the rewards file under `outcomes`"
            )
        self._entries[entry.pattern] = entry

    def fits(self, data_source: str) -> list[ScoreEntry]:
        """All entries that fit a data source, the one that wins first."""
        found = [entry for entry in self._entries.values() if matches(entry.pattern, data_source)]
        return sorted(found, key=lambda entry: (entry.pattern != data_source, -len(entry.pattern)))

    def find(self, data_source: str) -> ScoreEntry:
        """The entry of a data source.

        Raises:
            ConfigError: there is none.
        """
        fits = self.fits(data_source)
        if not fits:
            raise ConfigError(
                f"data_source: no score for {data_source!r}; there are: {', '.join(sorted(self._entries))}"
            )
        return fits[0]

    def entries(self) -> list[ScoreEntry]:
        """All, by pattern."""
        return [self._entries[pattern] for pattern in sorted(self._entries)]


REGISTRY = ScoreRegistry()
score = REGISTRY.score


def load_built_in() -> None:
    """Register the functions that Rollbox brings. Called again it does nothing."""
    for name in _BUILT_IN:
        importlib.import_module(f"{__package__}.{name}")


def outcome_for(data_source: str) -> ScoreEntry:
    """The score function of a data source, to be awaited.

    Raises:
        ConfigError: there is none.
    """
    load_built_in()
    return REGISTRY.find(data_source)


def matches(pattern: str, data_source: str) -> bool:
    """Whether a data source is the pattern, or begins with what stands before its `*`."""
    return data_source.startswith(pattern[:-1]) if pattern.endswith("*") else data_source == pattern


def place_of(function: Any) -> str:
    """FILE:LINE of a function or class."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):  # no class, or one that was typed in
        return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def check_samples(samples: Iterable[Sample], find: Callable[[str], ScoreEntry] = outcome_for) -> None:
    """Find out before the run whether every sample can be scored.

    Args:
        find: gives the function of a data source.

    Raises:
        ConfigError: a data source without a score, or a ground truth that is missing or cannot be read.
    """
    for sample in samples:
        if sample.ground_truth is None:
            raise ConfigError(f"sample {sample.sample_id!r}: ground_truth is missing")
        try:
            entry = find(sample.data_source)
            if entry.check is not None:
                entry.check(sample.ground_truth)
        except ConfigError as error:
            raise ConfigError(f"sample {sample.sample_id!r}: {error}") from error
