"""The local engine with models that see, against a plain forward pass with the same pixels."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.vision.image_tokens import ImageTokens
from rollbox.schemas.generation import ImageInput, SamplingParams
from rollbox.schemas.trajectory import Sample, Trajectory

from .image_tool import ImageTool
from .vision_models import picture, processor_of


def plain_logprobs(model_dir: Path, ids: list[int], images: list[Any]) -> list[float]:
    """[len(ids) - 1]: one forward pass over everything, as the model's own code computes positions."""
    from transformers import AutoModelForImageTextToText

    processor = processor_of(model_dir)
    model = AutoModelForImageTextToText.from_pretrained(model_dir, dtype=torch.float32).eval()
    table = torch.tensor([ids])
    given = dict(processor.image_processor(images=images, return_tensors="pt")) if images else {}
    if images and "image_grid_thw" in given:
        given["mm_token_type_ids"] = (table == model.config.image_token_id).int()
    with torch.inference_mode():
        logits = model(input_ids=table, attention_mask=torch.ones_like(table), **given).logits[0, :-1]
    return torch.log_softmax(logits, dim=-1).gather(1, table[0, 1:, None])[:, 0].tolist()


def prompt_with(tokens: ImageTokens, *parts: Any) -> tuple[list[int], list[ImageInput]]:
    """Ids and images of a prompt of texts and pictures."""
    ids: list[int] = []
    images: list[ImageInput] = []
    for part in parts:
        if isinstance(part, str):
            ids += tokens.processor.tokenizer.encode(part, add_special_tokens=False)
        else:
            count = tokens.count(part)
            images.append(ImageInput(part, len(ids), len(ids) + count))
            ids += [tokens.image_id] * count
    return ids, images


async def test_logprobs_of_a_mixed_batch_agree_with_a_plain_forward_pass(vision_model_dir: Path) -> None:
    tokens = ImageTokens(processor_of(vision_model_dir))
    prompts = [
        prompt_with(
            tokens, "What is 17 * 23 in this? ", picture(200, 90), " and in this? ", picture(64, 64, 1), " So:"
        ),
        prompt_with(tokens, "What is 17 * 23? It is a text that is longer than the others, without any picture."),
        prompt_with(tokens, "See ", picture(60, 150, 2), " there"),
    ]
    sampling = SamplingParams(max_tokens=24, temperature=1.0, seed=1)
    async with HuggingFaceEngine(vision_model_dir) as engine:
        outputs = await asyncio.gather(
            *(engine.generate(str(i), ids, sampling, images) for i, (ids, images) in enumerate(prompts))
        )
    for (ids, images), output in zip(prompts, outputs, strict=True):
        expected = plain_logprobs(vision_model_dir, ids + output.token_ids, [image.pixels for image in images])
        assert output.logprobs == pytest.approx(expected[len(ids) - 1 :], abs=1e-3)


async def test_the_pixels_count(vision_model_dir: Path) -> None:
    tokens = ImageTokens(processor_of(vision_model_dir))
    sampling = SamplingParams(max_tokens=4, temperature=0)
    found = []
    async with HuggingFaceEngine(vision_model_dir) as engine:
        for seed in (1, 2, 1):
            ids, images = prompt_with(tokens, "See ", picture(64, 64, seed), " there, and a shared text behind it")
            found.append(await engine.generate("x", ids, sampling, images))
    assert found[0].logprobs == pytest.approx(found[2].logprobs, abs=1e-6)
    assert found[0].logprobs != pytest.approx(found[1].logprobs, abs=1e-6)


async def test_text_of_a_model_that_sees_is_exact_also_after_images_and_with_a_shared_prefix(
    vision_model_dir: Path,
) -> None:
    tokens = ImageTokens(processor_of(vision_model_dir))
    sampling = SamplingParams(max_tokens=8, temperature=1.0, seed=3)
    prefix = [(7 * i) % 200 + 5 for i in range(48)]
    prompts = [[*prefix, 9, 9], [*prefix, 8], [*prefix, 7, 7, 7]]
    async with HuggingFaceEngine(vision_model_dir) as engine:
        ids, images = prompt_with(tokens, "See ", picture(200, 90), " there")
        await engine.generate("seen", ids, sampling, images)
        outputs = await asyncio.gather(*(engine.generate("p", prompt, sampling) for prompt in prompts))
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = plain_logprobs(vision_model_dir, prompt + output.token_ids, [])
        assert output.logprobs == pytest.approx(expected[len(prompt) - 1 :], abs=1e-3)


class Calling:
    """Passes on to an engine, and writes a call in place of its first turn."""

    def __init__(self, engine: HuggingFaceEngine, call: str) -> None:
        self._engine, self._call = engine, call
        self.tokenizer, self.processor, self.max_context = engine.tokenizer, engine.processor, engine.max_context

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Any = ()) -> Any:
        output = await self._engine.generate(request_id, prompt_ids, sampling, images)
        if images:
            return output
        ids = [*self.tokenizer.encode(self._call, add_special_tokens=False), self.tokenizer.eos_token_id]
        return output.model_copy(update={"token_ids": ids, "logprobs": [0.0] * len(ids), "finish_reason": "stop"})


async def test_a_whole_trajectory_is_what_a_plain_forward_pass_sees(vision_model_dir: Path) -> None:
    call = '<tool_call>\n{"name": "draw", "arguments": {}}\n</tool_call>'
    tools = {"draw": ImageTool(picture(100, 60), picture(64, 128, 1))}
    sample = Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": "Draw."}])
    async with HuggingFaceEngine(vision_model_dir) as engine:
        loop = RolloutLoop(
            Calling(engine, call),
            tools,
            get_parser("hermes"),
            SamplingParams(max_tokens=32, seed=4),
            RolloutLimits(max_turns=2),
        )
        trajectory: Trajectory = await loop.run(sample)
    ids = trajectory.prompt_ids + trajectory.response_ids
    expected = plain_logprobs(vision_model_dir, ids, [image.pixels for image in trajectory.images])
    last = trajectory.spans[-1]
    assert (len(trajectory.images), last.kind, last.turn) == (2, "assistant", 1)
    assert last.end > last.start
    first = len(trajectory.prompt_ids) - 1
    assert trajectory.response_logprobs[last.start : last.end] == pytest.approx(
        expected[first + last.start : first + last.end], abs=1e-3
    )
