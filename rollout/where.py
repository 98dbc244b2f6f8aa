"""Where a name comes from: the score functions, parts, tools and tool-call formats that are there without a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from ..rewards.compose import RewardComposition, outcome_choice
from ..rewards.registry import REGISTRY, load_built_in, matches, place_of
from ..schemas import reward_config
from ..schemas.reward_config import OutcomePart, RewardConfig
from ..tools.registry import load_tools
from ..tools_config import FOLDER
from .parsers import PARSERS

_IN_VERL = "in rollbox train actor_rollout_ref.rollout.multi_turn"


@dataclass(frozen=True, slots=True)
class Origin:
    """One meaning of a name.

    Attributes:
        kind: such as "score function". place: FILE:LINE, or the class's or file's name.
        selected_by: the setting that chooses it. note: who wins over whom, where several fit.
    """

    kind: str
    name: str
    place: str
    selected_by: str
    note: str = ""


def origins(name: str, rewards: Path | None = None, tools: Iterable[Path] = ()) -> Iterator[Origin]:
    """Everything of ours, and of the user's files, that the name means.

    Args:
        rewards: a rewards file, whose modules are loaded. tools: tools files beside those that ship.

    Raises:
        ConfigError: a file is wrong.
    """
    load_built_in()
    config = None if rewards is None else RewardComposition.load(rewards).config
    yield from _scores(name, config, rewards)
    yield from _parts(name, config, rewards)
    yield from _parsers(name)
    yield from _tools(name, tools)


def _scores(name: str, config: RewardConfig | None, file: Path | None) -> Iterator[Origin]:
    fits = REGISTRY.fits(name)
    chosen = outcome_choice(config.outcomes, name) if config is not None else None
    named = _functions_of_parts(name, config) if fits or chosen is not None else {}
    for part, function in named.items():
        winner = REGISTRY.find(function)
        yield Origin(
            "score function", winner.pattern, winner.place, f"parts.{part}.function of {file}", f"wins in part {part!r}"
        )
    if config is not None and chosen is not None:
        winner = REGISTRY.find(config.outcomes[chosen])
        yield Origin(
            "score function",
            winner.pattern,
            winner.place,
            f"outcomes.{chosen} of {file}",
            "wins over the rest" if not named else "wins over the rest in other parts",
        )
    for rank, entry in enumerate(fits):
        others = ", ".join(f"{other.pattern!r}" for other in fits[rank + 1 :])
        note = f"wins over {others}" if rank == 0 and others else ("" if rank == 0 else f"loses to {fits[0].pattern!r}")
        yield Origin(
            "score function",
            entry.pattern,
            entry.place,
            f"data_source={name}; `outcomes` in the rewards file",
            note if chosen is None else f"loses to outcomes.{chosen} of {file}",
        )


def _functions_of_parts(name: str, config: RewardConfig | None) -> dict[str, str]:
    """Part -> the function that it names itself, for a data source."""
    parts = {} if config is None else config.parts
    return {
        key: part.function
        for key, part in parts.items()
        if isinstance(part, OutcomePart)
        and part.function is not None
        and any(matches(p, name) for p in part.data_sources)
    }


def _parts(name: str, config: RewardConfig | None, file: Path | None) -> Iterator[Origin]:
    if config is not None and name in config.parts:
        part = config.parts[name]
        note = f"kind {part.kind}, weight {config.weight_of(name):g}"
        yield Origin("part of the rewards file", name, str(file), f"parts.{name} of {file}", note)
    for kind in get_args(get_args(reward_config.AnyPart)[0]):
        if name in get_args(kind.model_fields["kind"].annotation):
            yield Origin("reward part", name, place_of(kind), f"parts.NAME.kind={name} in the rewards file")


def _parsers(name: str) -> Iterator[Origin]:
    parser = PARSERS.get(name.removeprefix("rollbox_"))
    if parser is not None:
        yield Origin(
            "tool-call format",
            parser.name,
            place_of(parser),
            f"rollbox rollout --parser {parser.name}; {_IN_VERL}.format=rollbox_{parser.name}",
        )


def _tools(name: str, own: Iterable[Path]) -> Iterator[Origin]:
    shipped = sorted(FOLDER.glob("*.yaml"))
    for file in [*own, *shipped]:
        shown = (file.stem, f"{FOLDER.name}/{file.name}") if file in shipped else (str(file), str(file))
        for tool in load_tools(file).values():
            if name in (tool.name, type(tool).__name__):
                yield Origin(
                    "tool",
                    tool.name,
                    place_of(type(tool)),
                    f"rollbox rollout --tools {shown[0]}; {_IN_VERL}.tool_config_path={shown[1]}",
                    "the file's tool_schema wins over the class's default_schema",
                )
