"""Where a name comes from: the score functions, parts, tools and tool-call formats that are there without a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from ..rewards.registry import REGISTRY, load_built_in, place_of
from ..schemas import reward_config
from ..tools.registry import load_tools
from ..tools_config import FOLDER
from .parsers import PARSERS


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


def origins(name: str) -> Iterator[Origin]:
    """Everything of ours that the name means."""
    yield from _scores(name)
    yield from _parts(name)
    yield from _parsers(name)
    yield from _tools(name)


def _scores(name: str) -> Iterator[Origin]:
    load_built_in()
    fits = REGISTRY.fits(name)
    for rank, entry in enumerate(fits):
        others = ", ".join(f"{other.pattern!r}" for other in fits[rank + 1 :])
        note = f"wins over {others}" if rank == 0 and others else ("" if rank == 0 else f"loses to {fits[0].pattern!r}")
        yield Origin(
            "score function", entry.pattern, entry.place, f"data_source={name}; `outcomes` in the rewards file", note
        )


def _parts(name: str) -> Iterator[Origin]:
    for part in get_args(get_args(reward_config.AnyPart)[0]):
        if name in get_args(part.model_fields["kind"].annotation):
            yield Origin("reward part", name, place_of(part), f"parts.NAME.kind={name} in the rewards file")


def _parsers(name: str) -> Iterator[Origin]:
    parser = PARSERS.get(name.removeprefix("rollbox_"))
    if parser is not None:
        yield Origin(
            "tool-call format",
            parser.name,
            place_of(parser),
            f"rollbox rollout --parser {parser.name}; in verl multi_turn.format=rollbox_{parser.name}",
        )


def _tools(name: str) -> Iterator[Origin]:
    for file in sorted(FOLDER.glob("*.yaml")):
        for tool in load_tools(file).values():
            if name in (tool.name, type(tool).__name__):
                yield Origin(
                    "tool",
                    tool.name,
                    place_of(type(tool)),
                    f"--tools {file.stem}; in verl multi_turn.tool_config_path=…/{file.name}",
                    "the file's tool_schema wins over the class's default_schema",
                )
