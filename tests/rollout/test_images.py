"""Images through the loop: tokens, masks and pixels that belong together, and what happens where they cannot."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest

from rollbox.rollout.chat_template import ChatTemplate
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.vision.image_tokens import ImageTokens
from rollbox.schemas.errors import ConfigError, ErrorKind
from rollbox.schemas.generation import ImageInput, SamplingParams, TokenOutput
from rollbox.schemas.trajectory import Sample, StopReason, Trajectory
from rollbox.tools.calculator import CalculatorTool

from ..conftest import ScriptedEngine
from .image_tool import ImageTool
from .vision_models import picture, processor_of

DRAW = '<tool_call>\n{"name": "draw", "arguments": {}}\n</tool_call>'
CALCULATE = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>'
QUESTION = Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": "Draw."}], ground_truth="7")


class SeeingEngine(ScriptedEngine):
    """A scripted engine of a model that sees; keeps the images that it was given."""

    def __init__(self, processor: Any, script: list[str | Exception], max_context: int = 4096) -> None:
        super().__init__(processor.tokenizer, script, max_context)
        self.processor = processor
        self.images: list[list[ImageInput]] = []

    async def generate(  # type: ignore[override]
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Any = ()
    ) -> TokenOutput:
        self.images.append(list(images))
        return await super().generate(request_id, prompt_ids, sampling)


@pytest.fixture(scope="session")
def processor(vision_model_dir: Path) -> Any:
    return processor_of(vision_model_dir)


async def roll(engine: Any, *images: Any, sample: Sample = QUESTION, **limits: Any) -> Trajectory:
    tools = {"draw": ImageTool(*images), "calculator": CalculatorTool()}
    loop = RolloutLoop(engine, tools, get_parser("hermes"), SamplingParams(max_tokens=64), RolloutLimits(**limits))
    trajectory = await loop.run(sample)
    check(trajectory, engine)
    return trajectory


def check(trajectory: Trajectory, engine: Any) -> None:
    """Every prompt is what the trajectory begins with, and each run of placeholders has its pixels."""
    ids = trajectory.prompt_ids + trajectory.response_ids
    for prompt, given in zip(engine.prompts, getattr(engine, "images", []), strict=True):
        assert ids[: len(prompt)] == prompt
        image_id = ImageTokens(engine.processor).image_id
        inside = {at for image in given for at in range(image.start, image.end)}
        assert inside == {at for at, token_id in enumerate(prompt) if token_id == image_id}
    prompt_tokens = len(trajectory.prompt_ids)
    for image in trajectory.images:
        assert image.start is not None
        assert image.end is not None
        inside_response = slice(max(0, image.start - prompt_tokens), max(0, image.end - prompt_tokens))
        assert not any(trajectory.response_mask[inside_response])
        assert not any(trajectory.response_logprobs[inside_response])


async def test_a_tools_image_is_shown_as_the_processor_itself_would(processor: Any) -> None:
    shown = picture(100, 60)
    engine = SeeingEngine(processor, [DRAW, "#### 7"])
    trajectory = await roll(engine, shown)
    assert trajectory.stop_reason is StopReason.ANSWERED
    [image] = trajectory.images
    assert (image.width, image.height, image.pixels) == (100, 60, shown)
    parts = trajectory.messages[2]["content"]
    assert parts == [{"type": "image", "image": image.file}, {"type": "text", "text": "drawn"}]
    [record] = trajectory.records
    assert (record.images, record.images_left_out) == (1, 0)
    [given] = engine.images[1]
    assert (given.pixels, given.start, given.end) == (shown, image.start, image.end)
    schemas = [ImageTool().tool_schema.as_template_dict(), CalculatorTool().tool_schema.as_template_dict()]
    turn = {"role": "assistant", "content": DRAW}
    text = processor.tokenizer.apply_chat_template(
        [trajectory.messages[0], turn, trajectory.messages[2]],
        tools=schemas,
        tokenize=False,
        add_generation_prompt=True,
    )
    assert engine.prompts[1] == processor(text=[text], images=[shown], add_special_tokens=False)["input_ids"][0]


async def test_images_of_parallel_calls_and_of_several_turns_keep_their_order(processor: Any) -> None:
    first, second = picture(64, 64, 1), picture(150, 40, 2)
    engine = SeeingEngine(processor, [DRAW + CALCULATE + DRAW, DRAW, "#### 7"])
    trajectory = await roll(engine, first, second)
    assert [image.pixels for image in trajectory.images] == [first, second] * 3
    assert [len(given) for given in engine.images] == [0, 4, 6]
    starts = [image.start for image in trajectory.images]
    assert starts == sorted(set(starts))
    assert len({image.file for image in trajectory.images}) == 2


async def test_the_record_holds_no_pixels_and_reads_back(processor: Any) -> None:
    trajectory = await roll(SeeingEngine(processor, [DRAW, "#### 7"]), picture(500, 400))
    line = trajectory.model_dump_json()
    assert len(line) < 20_000
    again = Trajectory.model_validate_json(line)
    assert [image.pixels for image in again.images] == [None]
    assert again.model_dump_json() == line


async def test_images_of_the_prompt(processor: Any) -> None:
    shown = picture(80, 80)
    file = io.BytesIO()
    shown.save(file, "PNG")
    content = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What is it?"}]
    sample = QUESTION.model_copy(
        update={"messages": [{"role": "user", "content": content}], "images": [file.getvalue()]}
    )
    engine = SeeingEngine(processor, [DRAW, "#### 7"])
    trajectory = await roll(engine, picture(64, 64), sample=sample)
    assert [list(given.pixels.get_flattened_data()) for given in engine.images[0]] == [list(shown.get_flattened_data())]
    assert trajectory.images[0].end is not None
    assert trajectory.images[0].end <= len(trajectory.prompt_ids)
    assert trajectory.messages[0] == trajectory.sample.messages[0]
    assert trajectory.messages[0]["content"][0] == {"type": "image", "image": trajectory.images[0].file}


@pytest.mark.parametrize("given", [b"no image", "/nowhere/a.png", "data:image/png;base64,AAAA"])
async def test_a_broken_image_of_the_prompt_is_named(processor: Any, given: Any) -> None:
    content = [{"type": "image"}, {"type": "text", "text": "What?"}]
    sample = QUESTION.model_copy(update={"messages": [{"role": "user", "content": content}], "images": [given]})
    with pytest.raises(ConfigError, match="sample 's'"):
        await roll(SeeingEngine(processor, ["#### 7"]), sample=sample)


async def test_a_text_only_model_is_told_what_it_is_not_shown(scripted_engine: Any) -> None:
    engine = scripted_engine([DRAW, "#### 7"])
    loop = RolloutLoop(engine, {"draw": ImageTool(picture(64, 64))}, get_parser("hermes"))
    trajectory = await loop.run(QUESTION)
    assert trajectory.messages[2]["content"] == "drawn\n(An image was left out: this model reads text only.)"
    assert trajectory.images == []
    [record] = trajectory.records
    assert (record.images, record.images_left_out, record.is_infra) == (0, 1, False)
    content = [{"type": "image"}]
    sample = QUESTION.model_copy(update={"messages": [{"role": "user", "content": content}], "images": [b""]})
    with pytest.raises(ConfigError, match="this model is shown text only"):
        await loop.run(sample)


async def test_a_full_context_drops_whole_images_and_says_so(processor: Any) -> None:
    big = picture(300, 300)
    count = ImageTokens(processor).count(big)
    free = SeeingEngine(processor, [DRAW, "#### 7"])
    roomy = await roll(free, big, big, big)
    context = len(free.prompts[1]) - 1  # one token less than three images and a token of answer need
    engine = SeeingEngine(processor, [DRAW, "7"], max_context=context)
    trajectory = await roll(engine, big, big, big)
    left_out = trajectory.records[0].images_left_out
    assert (len(roomy.images), len(trajectory.images)) == (3, 3 - left_out)
    assert left_out > 0
    assert len(trajectory.prompt_ids) + len(trajectory.response_ids) <= context
    if trajectory.images:
        text = trajectory.messages[2]["content"][-1]["text"]
        assert text.count("(An image was left out: there is no room left for it.)") == left_out
        assert len(engine.images[1]) * count == sum(
            token_id == ImageTokens(processor).image_id for token_id in engine.prompts[1]
        )


async def test_no_room_even_without_images_ends_the_trajectory(processor: Any) -> None:
    free = SeeingEngine(processor, [DRAW, "7"])
    await roll(free, picture(64, 64))
    engine = SeeingEngine(processor, [DRAW, "7"], max_context=len(free.prompts[0]) + 40)
    trajectory = await roll(engine, picture(64, 64))
    assert trajectory.stop_reason in (StopReason.CONTEXT_FULL, StopReason.TURN_TRUNCATED)
    assert trajectory.images == []


async def test_placeholders_in_a_tools_text_stand_for_no_image(processor: Any) -> None:
    engine = SeeingEngine(processor, [DRAW, "#### 7"])
    loop = RolloutLoop(engine, {"draw": _Repeating(processor.image_token)}, get_parser("hermes"))
    trajectory = await loop.run(QUESTION)
    check(trajectory, engine)
    assert len(trajectory.images) == 1
    assert trajectory.messages[2]["content"][-1]["text"] == f"a < {processor.image_token[1:]} b"


class _Repeating(ImageTool):
    def __init__(self, text: str) -> None:
        super().__init__(picture(64, 64))
        self._text = text

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        return await super().execute(instance_id, {"text": f"a {self._text} b"}, **kwargs)


async def test_a_turn_is_cut_before_a_placeholder_that_the_model_writes(processor: Any) -> None:
    trajectory = await roll(SeeingEngine(processor, [f"I see {processor.image_token}{DRAW}"]), picture(64, 64))
    assert trajectory.stop_reason is StopReason.TURN_TRUNCATED
    assert trajectory.assistant_texts == ["I see "]
    assert "wrote an image's token" in (trajectory.error or "")
    assert not trajectory.infra_failed


@pytest.mark.parametrize(
    ("broken", "kind", "why"),
    [
        (b"no image", ErrorKind.USER_CODE, "cannot be read"),
        ("no base64!", ErrorKind.USER_CODE, "cannot be read"),
        ({"url": "x"}, ErrorKind.USER_CODE, "of type dict"),
        (picture(5000, 4000).resize((5000, 4000)), ErrorKind.OUTPUT_LIMIT, "5000 x 4000 pixels"),
    ],
)
async def test_what_cannot_be_shown_is_told(processor: Any, broken: Any, kind: ErrorKind, why: str) -> None:
    trajectory = await roll(SeeingEngine(processor, [DRAW, "#### 7"]), broken, picture(64, 64))
    [record] = trajectory.records
    assert (record.error_kind, record.images, record.images_left_out) == (kind, 1, 1)
    text = trajectory.messages[2]["content"][-1]["text"]
    assert "An image was left out" in text
    assert why in text
    assert (len(trajectory.images), trajectory.infra_failed) == (1, False)


async def test_data_uris_and_base64_are_images(processor: Any) -> None:
    file = io.BytesIO()
    picture(64, 64).save(file, "PNG")
    coded = base64.b64encode(file.getvalue()).decode()
    trajectory = await roll(
        SeeingEngine(processor, [DRAW, "#### 7"]), coded, f"data:image/png;base64,{coded}", file.getvalue()
    )
    assert len({image.file for image in trajectory.images}) == 1
    assert len(trajectory.images) == 3


def template_with(processor: Any, template: str) -> Any:
    tokenizer = processor.tokenizer
    tokenizer.chat_template = template
    return tokenizer


def test_the_check_finds_templates_that_count_images(vision_model_dir: Path) -> None:
    processor = processor_of(vision_model_dir)
    good = processor.tokenizer.chat_template
    mark = "<|vision_start|>" if "<|vision_start|>" in good else "<image>"
    # A number that goes on over the whole conversation: a delta cannot know it.
    counting = good.replace(mark, "Picture {{ messages | length }}: " + mark, 1)
    tokens = ImageTokens(processor)
    with pytest.raises(ConfigError, match="with images"):
        ChatTemplate(template_with(processor, counting), [], image_tokens=tokens)
    assert ChatTemplate(template_with(processor, counting), [], check="off", image_tokens=tokens).image_tokens is tokens
    silent = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% endif %}"
    silent += "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    assert ChatTemplate(template_with(processor, silent), [], image_tokens=tokens).image_tokens is None
