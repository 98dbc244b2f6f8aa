"""Models that see on a real vLLM, in process and as a server: its tokens of an image are ours, so are its logprobs."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollbox.rollout.engines.base import VisionEngine
from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.vllm import VllmEngine
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.vision.image_tokens import ImageTokens
from rollbox.schemas.errors import EngineError
from rollbox.schemas.generation import ImageInput, SamplingParams
from rollbox.schemas.trajectory import Sample

from ..rollout.image_tool import ImageTool
from ..rollout.test_seeing_engine import Calling, plain_logprobs, prompt_with
from ..rollout.vision_models import MAKERS, picture, processor_of
from .conftest import ENGINE_ARGS, VllmServer


@pytest.fixture(scope="module", params=["qwen2-vl", "qwen2.5-vl", "qwen3-vl"])
def seeing_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    importlib.import_module("torchvision")  # vLLM's own code for them needs it; where it is missing, that is said here
    directory = tmp_path_factory.mktemp("seeing") / str(request.param)
    MAKERS[request.param](directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["in_process", "server"])
async def engine(
    request: pytest.FixtureRequest, seeing_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VisionEngine]:
    if request.param == "in_process":
        async with VllmEngine(seeing_dir, engine_args=ENGINE_ARGS) as started:
            yield started
        return
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    with VllmServer(seeing_dir, log, "--enable-scale-out") as server:
        await server.ready()
        async with CompletionsEngine(server.url, seeing_dir) as connected:
            yield connected


async def test_logprobs_agree_with_a_plain_forward_pass(engine: VisionEngine, seeing_dir: Path) -> None:
    tokens = ImageTokens(processor_of(seeing_dir))
    sampling = SamplingParams(max_tokens=16, temperature=1.0, seed=1)
    for parts in (("What? ", picture(200, 90), " And ", picture(64, 64, 1), "?"), ("See ", picture(60, 150, 2), " it")):
        ids, images = prompt_with(tokens, *parts)
        output = await engine.generate("t", ids, sampling, images)
        expected = plain_logprobs(seeing_dir, ids + output.token_ids, [image.pixels for image in images])
        assert output.logprobs == pytest.approx(expected[len(ids) - 1 :], abs=1e-3)


async def test_the_same_ids_with_other_pixels_are_another_prompt(engine: VisionEngine, seeing_dir: Path) -> None:
    """The prefix cache knows ids; pixels must count there too."""
    tokens = ImageTokens(processor_of(seeing_dir))
    greedy = SamplingParams(max_tokens=4, temperature=0)
    found = []
    for seed in (1, 2, 1):
        ids, images = prompt_with(tokens, "See ", picture(64, 64, seed), " and a text behind it " * 8)
        found.append(await engine.generate("t", ids, greedy, images))
    assert found[0].logprobs == pytest.approx(found[2].logprobs, abs=1e-4)
    assert found[0].logprobs != pytest.approx(found[1].logprobs, abs=1e-4)


async def test_another_number_of_tokens_is_refused(engine: VisionEngine, seeing_dir: Path) -> None:
    tokens = ImageTokens(processor_of(seeing_dir))
    ids, [image] = prompt_with(tokens, "See ", picture(64, 64), " it")
    longer = [*ids[: image.start], tokens.image_id, *ids[image.start :]]
    with pytest.raises(EngineError, match=f"made {len(ids)} tokens of a prompt with images that has {len(longer)}"):
        await engine.generate(
            "t", longer, SamplingParams(max_tokens=2), [ImageInput(image.pixels, image.start, image.end + 1)]
        )


async def test_a_whole_trajectory_is_what_a_plain_forward_pass_sees(engine: Any, seeing_dir: Path) -> None:
    calling = Calling(engine, '<tool_call>\n{"name": "draw", "arguments": {}}\n</tool_call>')
    tools = {"draw": ImageTool(picture(100, 60), picture(64, 128, 1))}
    sampling, limits = SamplingParams(max_tokens=32, seed=4), RolloutLimits(max_turns=2)
    loop = RolloutLoop(calling, tools, get_parser("hermes"), sampling, limits)
    sample = Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": "Draw."}])
    trajectory = await loop.run(sample)
    assert trajectory.error is None
    ids = trajectory.prompt_ids + trajectory.response_ids
    expected = plain_logprobs(seeing_dir, ids, [image.pixels for image in trajectory.images])
    last, first = trajectory.spans[-1], len(trajectory.prompt_ids) - 1
    assert (len(trajectory.images), last.kind, last.turn) == (2, "assistant", 1)
    found = trajectory.response_logprobs[last.start : last.end]
    assert found == pytest.approx(expected[first + last.start : first + last.end], abs=1e-3)
