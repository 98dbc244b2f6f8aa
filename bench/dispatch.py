"""CPU time of dispatch around a tool that does nothing, and the event loop's pulse under 10,000 calculator calls.

python bench/dispatch.py [calls]
"""

import asyncio
import statistics
import sys
import time
from typing import Any, ClassVar

from rollbox.schemas.tool import ToolCall, ToolResponse
from rollbox.tools.base import BaseTool, ToolReturn
from rollbox.tools.calculator import CalculatorTool
from rollbox.tools.dispatch import DispatchLimits, ToolBox

HEARTBEAT_S = 0.010


class NothingTool(BaseTool):
    default_schema: ClassVar[dict[str, Any] | None] = {
        "type": "function",
        "function": {
            "name": "nothing",
            "parameters": {
                "properties": {"text": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
                "required": ["text"],
            },
        },
    }

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        return ToolResponse(text="ok"), 0.0, {}


async def overhead_us(box: ToolBox, calls: int, per_trajectory: int) -> float:
    """CPU microseconds per call, creating and releasing the tool once per trajectory included."""
    call = ToolCall(name="nothing", arguments={"text": "x" * 200, "count": 3})
    start = time.process_time()
    for number in range(calls // per_trajectory):
        async with box.trajectory(str(number)) as tools:
            for turn in range(per_trajectory):
                answer = await tools.call(call, turn, 0)
                assert answer.record.error_kind is None
    return (time.process_time() - start) / calls * 1e6


async def heartbeat_ms(calls: int) -> tuple[float, list[float], list[float]]:
    """Seconds of CPU for all calls; per 10 ms heartbeat how late it came and the CPU time since the one before.

    Both in milliseconds. On a machine that others use too, the first also tells of them; the second is ours alone.
    """
    box = ToolBox({"calculator": CalculatorTool()}, DispatchLimits(call_timeout_s=600))
    late_ms: list[float] = []
    busy_ms: list[float] = []
    ended = asyncio.Event()

    async def beat() -> None:
        while not ended.is_set():
            due, cpu_s = time.perf_counter() + HEARTBEAT_S, time.process_time()
            await asyncio.sleep(HEARTBEAT_S)
            late_ms.append((time.perf_counter() - due) * 1e3)
            busy_ms.append((time.process_time() - cpu_s) * 1e3)

    async def one(number: int) -> None:
        async with box.trajectory(str(number)) as tools:
            call = ToolCall(name="calculator", arguments={"expression": f"({number} * 23 + 15% of 200) / sqrt(144)"})
            answer = await tools.call(call, 0, 0)
            assert answer.record.error_kind is None

    pulse = asyncio.create_task(beat())
    await asyncio.sleep(0)
    start = time.process_time()
    running = []
    for number in range(calls):
        running.append(asyncio.create_task(one(number)))
        if number % 100 == 99:  # ten thousand tasks made in one breath are late before any of them has called a tool
            await asyncio.sleep(0)
    await asyncio.gather(*running)
    cpu_s = time.process_time() - start
    ended.set()
    await pulse
    return cpu_s, sorted(late_ms), sorted(busy_ms)


async def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    plain, slotted = ToolBox({"nothing": NothingTool()}), NothingTool({"max_concurrency": 64})
    boxes = {"plain": plain, "with slots": ToolBox({"nothing": slotted}, DispatchLimits(max_concurrency=64))}
    for name, box in boxes.items():
        for per_trajectory in (1, 5):
            samples = [await overhead_us(box, 2000, per_trajectory) for _ in range(5)]
            print(f"dispatch, {name}, {per_trajectory} a trajectory: {statistics.median(samples):.1f} us CPU per call")
    cpu_s, late_ms, busy_ms = await heartbeat_ms(calls)
    print(f"{calls} calculator calls at a time: {cpu_s:.2f} s CPU, {len(late_ms)} heartbeats")
    for name, values in (("late by", late_ms), ("CPU time between two", busy_ms)):
        parts = (f"{values[int(len(values) * share)]:.1f}" for share in (0.5, 0.99))
        print(f"  {name}: {' / '.join(parts)} / {values[-1]:.1f} ms (median, 99 %, most)")


if __name__ == "__main__":
    asyncio.run(main())
