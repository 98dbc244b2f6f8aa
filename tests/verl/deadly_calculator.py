"""A calculator that takes the whole agent-loop worker with it, once, after the first checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from rollbox.tools.base import ToolReturn
from rollbox.tools.calculator import CalculatorTool


class DeadlyCalculator(CalculatorTool):
    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        folder = Path(os.environ["DEADLY_FOLDER"])
        if (folder / "checkpoints" / "latest_checkpointed_iteration.txt").exists():
            try:
                (folder / "killed").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return await super().execute(instance_id, parameters, **kwargs)
