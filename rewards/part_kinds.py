"""From a part of the rewards file to what scores it."""

from __future__ import annotations

from collections.abc import Callable

from ..schemas.reward_config import (
    AnyPart,
    ApiPart,
    CallCostPart,
    FormatPart,
    OutcomePart,
    OverlongPart,
    RewardModelPart,
    RubricPart,
    StepsPart,
    ToolErrorsPart,
    ToolsPart,
    VoidTurnPart,
)
from . import parts
from .api import ApiScorer, StepScorer
from .parts import PartScorer
from .registry import REGISTRY, ScoreEntry
from .reward_model import LocalRewardModel
from .rubric import RubricScorer
from .served_reward_model import ServedRewardModel


def scorer_for(name: str, part: AnyPart, find: Callable[[str], ScoreEntry]) -> PartScorer:
    """What scores a part.

    Args:
        find: gives the score function of a data source.
    """
    match part:
        case OutcomePart():
            function = part.function
            return parts.outcome_part(name, part, find if function is None else lambda _: REGISTRY.find(function))
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
        case ApiPart():
            return ApiScorer(name, part)
        case StepsPart():
            return StepScorer(name, part)
        case RewardModelPart():
            return LocalRewardModel(name, part) if part.service is None else ServedRewardModel(name, part)
        case RubricPart():
            return RubricScorer(name, part)
