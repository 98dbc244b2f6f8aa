"""From a part of the rewards file to what scores it."""

from __future__ import annotations

from collections.abc import Callable

from ..schemas.reward_config import (
    AnyPart,
    CallCostPart,
    FormatPart,
    OutcomePart,
    OverlongPart,
    ToolErrorsPart,
    ToolsPart,
    VoidTurnPart,
)
from . import parts
from .parts import PartScorer
from .registry import REGISTRY, ScoreEntry


def scorer_for(name: str, part: AnyPart, find: Callable[[str], ScoreEntry]) -> PartScorer:
    """What scores a part.

    Args:
        find: gives the score function of a data source.
    """
    match part:
        case OutcomePart(function=None):
            return parts.outcome_part(name, part, find)
        case OutcomePart(function=str() as function):
            return parts.outcome_part(name, part, lambda _: REGISTRY.find(function))
        case FormatPart():
            return parts.format_part(name, part)
        case OverlongPart():
            return parts.overlong_part(name, part)
        case CallCostPart():
            return parts.call_cost_part(name, part)
        case ToolErrorsPart():
            return parts.tool_errors_part(name, part)
        case VoidTurnPart():
            return parts.void_turn_part(name, part)
        case ToolsPart():
            return parts.tools_part(name, part)
    raise AssertionError(f"no scorer for a part of kind {part.kind!r}")
