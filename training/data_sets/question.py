"""A question of a data set, and what a data set is to the program that prepares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...schemas.errors import ConfigError


class LeftOutError(Exception):
    """A row that is no question to train on. The text says why, in words that go on from "left out:"."""


@dataclass(frozen=True, slots=True)
class Question:
    """
    Attributes:
        text: the user's message. data_source: which score there is for it.
        ground_truth: as the score of the data source reads it; of one shape in all questions of a data set.
        name: of the row in its data set; None where it has none.
    """

    text: str
    data_source: str
    ground_truth: Any
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """
    Attributes:
        columns: that are read; a Parquet file may hold much more.
        instruction: the system message, unless another is asked for.
        question: what (row, where it stands) asks. Raises LeftOutError, and ConfigError for a row of another layout.
        rows_at_a_time: that are held in memory.
    """

    columns: frozenset[str]
    instruction: str
    question: Callable[[Mapping[str, Any], str], Question]
    rows_at_a_time: int = 256


def text_of(row: Mapping[str, Any], where: str, *names: str) -> str:
    """The first of the columns that holds anything: a text, or the last message of the user's in a conversation.

    Raises:
        ConfigError: none does, or it is neither.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, list):
            said = [message for message in value if isinstance(message, Mapping) and message.get("role") == "user"]
            value = said[-1].get("content") if said else None
            if not isinstance(value, str):
                raise ConfigError(f"{where}: {name}: holds no text of a user's")
        if isinstance(value, str) and value.strip():
            if any("\ud800" <= letter <= "\udfff" for letter in value):
                raise ConfigError(f"{where}: {name}: holds half a surrogate pair, which no file in UTF-8 can hold")
            return value.strip()
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{where}: {name}: must be a text (got {type(value).__name__})")
    has = ", ".join(name for name, value in row.items() if value not in (None, "")) or "none"
    raise ConfigError(f"{where}: has no {' or '.join(map(repr, names))}; of the columns that are read it has: {has}")


def verl_truth(row: Mapping[str, Any]) -> Any:
    """`reward_model.ground_truth` of a row that is in verl's layout already, or None."""
    reward_model = row.get("reward_model")
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def name_of(row: Mapping[str, Any], *names: str) -> str | None:
    return next((str(row[name]) for name in names if row.get(name) not in (None, "")), None)
