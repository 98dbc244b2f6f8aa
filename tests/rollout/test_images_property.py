"""Whatever a model says and tools draw, and wherever the limits cut: ids, mask, spans and images add up."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.vision.image_tokens import ImageTokens
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.message import image_parts
from rollbox.schemas.trajectory import Sample, Trajectory
from rollbox.tools.calculator import CalculatorTool

from .image_tool import ImageTool
from .test_images import CALCULATE, DRAW, SeeingEngine, check, processor  # noqa: F401 - a fixture
from .vision_models import picture

UNREADABLE = '<tool_call>\n{"name": "draw", "arguments": {\n</tool_call>'
pieces = st.sampled_from([DRAW, DRAW, CALCULATE, UNREADABLE, "Some words. ", "…", "PLACEHOLDER"])
turns = st.lists(pieces, min_size=1, max_size=4).map("".join)
sizes = st.tuples(st.integers(32, 200), st.integers(32, 200))


# Without shrinking, which takes minutes here.
@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    script=st.lists(turns, min_size=1, max_size=5),
    drawn=st.lists(sizes, min_size=1, max_size=3),
    asked=st.lists(sizes, max_size=2),
    room=st.integers(1, 600),
    by_context=st.booleans(),
    max_tokens=st.sampled_from([3, 17, 64]),
    max_turns=st.integers(1, 5),
)
def test_everything_adds_up(
    processor: Any,  # noqa: F811
    script: list[str],
    drawn: list[tuple[int, int]],
    asked: list[tuple[int, int]],
    room: int,
    by_context: bool,
    max_tokens: int,
    max_turns: int,
) -> None:
    placeholder = ImageTokens(processor).placeholder
    engine = SeeingEngine(processor, [turn.replace("PLACEHOLDER", placeholder) for turn in script])
    tools = {"draw": ImageTool(*(picture(*size) for size in drawn)), "calculator": CalculatorTool()}
    limits = RolloutLimits(max_turns=max_turns, max_response_tokens=4096 if by_context else room)
    sampling = SamplingParams(max_tokens=max_tokens)
    loop = RolloutLoop(engine, tools, get_parser("hermes"), sampling, limits, template_check="off")
    parts = [*({"type": "image"} for _ in asked), {"type": "text", "text": f"Draw {placeholder} it."}]
    messages = [{"role": "user", "content": parts if asked else "Draw."}]
    sample = Sample(
        sample_id="s", data_source="x", messages=messages, images=[picture(*size) for size in asked], ground_truth="7"
    )
    if by_context:
        engine.max_context = len(asyncio.run(loop.run(sample)).prompt_ids) + room
        engine.prompts.clear()
        engine.images.clear()
        engine.script = [turn.replace("PLACEHOLDER", placeholder) for turn in script]
    trajectory = asyncio.run(loop.run(sample))
    check(trajectory, engine)
    ids = trajectory.prompt_ids + trajectory.response_ids
    assert len(trajectory.response_ids) <= (4096 if by_context else room)
    assert len(ids) <= engine.max_context
    assert len(image_parts(trajectory.messages)) == len(trajectory.images)
    inside = [at for image in trajectory.images for at in range(image.start or 0, image.end or 0)]
    assert inside == [at for at, token_id in enumerate(ids) if token_id == ImageTokens(processor).image_id]
    line = trajectory.model_dump_json()
    assert Trajectory.model_validate_json(line).model_dump_json() == line
