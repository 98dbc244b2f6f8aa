"""The calculator with rewards and faults of its own, so that a training run has rewards to place and rows to mask."""

from __future__ import annotations

from itertools import count
from typing import Any

from rollbox.tools.base import ToolReturn
from rollbox.tools.calculator import CalculatorTool

STEP, WHOLE = 0.5, 1.0
BROKEN_OF = 4
"""One in so many trajectories meets the bug. They are counted, not drawn: each step of a run has some."""
EXTRA = 0.25
"""What every second trajectory's step earns more, so that groups differ, and there is something to learn, whatever
the model happens to say."""


class RewardedCalculator(CalculatorTool):
    """Breaks in every fourth of the trajectories that call it, whatever the model calls it with, also again."""

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self.numbers = count(1)
        self.number_of: dict[str, int] = {}

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        if instance_id not in self.number_of:
            self.number_of[instance_id] = next(self.numbers)
        number = self.number_of[instance_id]
        if number % BROKEN_OF == 0:
            raise RuntimeError("a bug in the tool")
        response, _, metrics = await super().execute(instance_id, parameters, **kwargs)
        return response, STEP + EXTRA * (number % 2), metrics

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return WHOLE
