"""The calculator with rewards and faults of its own, so that a training run has rewards to place and rows to mask."""

from __future__ import annotations

from typing import Any

from rollbox.tools.base import ToolReturn
from rollbox.tools.calculator import CalculatorTool

STEP, WHOLE = 0.5, 1.0


class RewardedCalculator(CalculatorTool):
    """Breaks in a quarter of the trajectories, whatever the model does."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        if int(instance_id[:2], 16) < 64:
            raise RuntimeError("a bug in the tool")
        response, _, metrics = await super().execute(instance_id, parameters, **kwargs)
        return response, STEP, metrics

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return WHOLE
