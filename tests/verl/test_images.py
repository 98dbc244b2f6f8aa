"""Images of tools and prompts under `rollbox_agent`, in verl's real agent-loop worker with a model that sees.

What comes out is verl's own postprocessing: pixels and positions are what its actor is given.
"""

from __future__ import annotations

import asyncio
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import rollbox.training.plugin  # noqa: F401 - registers the loop and the reward manager
from rollbox.training.batch_rows import RECORD

from ..rollout.image_tool import ImageTool
from ..rollout.vision_models import make_qwen2_vl, picture, processor_of
from .in_process import PROMPT_LENGTH, batch, call, compose_config, make_worker

pytestmark = pytest.mark.verl

SEVEN = "#### 7<|im_end|>"
TOOL, ASKED = picture(100, 60), picture(64, 96, 1)
KINDS = ["text", "tool", "both"]
SCRIPTS: dict[str, list[str | Exception]] = {
    "text": [SEVEN],
    "tool": [call("draw"), SEVEN],
    "both": [call("draw"), call("draw"), SEVEN],
}


class DrawingTool(ImageTool):
    """What the YAML names."""

    def __init__(self, config: Any = None, tool_schema: Any = None) -> None:
        super().__init__(TOOL)


class RowImages:
    """Stands for verl's data set class, which reads images with `qwen_vl_utils`; that needs torchvision."""

    @classmethod
    async def process_multi_modal_info(cls, messages: Any, **_: Any) -> tuple[list[Any] | None, None, None]:
        found = [part["image"] for m in messages for part in m["content"] if isinstance(part, dict) and "image" in part]
        return found or None, None, None


def as_verl_loads_it(model_dir: Path) -> Any:
    """The processor with what `verl.utils.tokenizer.hf_processor` adds; without torchvision that gives none."""
    from transformers import AutoConfig
    from transformers.models.qwen2_vl import Qwen2VLModel

    processor = processor_of(model_dir)
    processor.config = AutoConfig.from_pretrained(model_dir)
    for name in ("get_rope_index", "get_vision_position_ids"):
        setattr(processor, name, types.MethodType(getattr(Qwen2VLModel, name), processor))
    return processor


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """The batch of all kinds, the client, and the model's directory."""
    folder = tmp_path_factory.mktemp("seeing")
    model_dir = folder / "model"
    make_qwen2_vl(model_dir)
    schema = ImageTool.default_schema
    entry = {"class_name": f"{DrawingTool.__module__}.DrawingTool", "config": {"type": "native"}, "tool_schema": schema}
    (folder / "tools.yaml").write_text(yaml.safe_dump({"tools": [entry]}))
    config = compose_config(
        model_dir, folder / "tools.yaml", "trainer.use_v1=False", "reward.reward_manager.name=rollbox"
    )
    worker, client = make_worker(config, SCRIPTS)
    worker.processor, worker.dataset_cls = as_verl_loads_it(model_dir), RowImages
    given: list[tuple[list[int], Any]] = []
    generate = client.generate

    async def noting(request_id: str, **asked: Any) -> Any:
        given.append((list(asked["prompt_ids"]), asked.get("image_data")))
        return await generate(request_id, **asked)

    client.generate = noting  # type: ignore[method-assign]
    asked = [{"type": "image", "image": ASKED}, {"type": "text", "text": "Question. KIND=both"}]
    prompts = [[{"role": "user", "content": f"Question. KIND={kind}"}] for kind in KINDS[:2]]
    data = batch(KINDS, "rollbox_agent", raw_prompt=[*prompts, [{"role": "user", "content": asked}]])
    return asyncio.run(worker.generate_sequences(data)), given, model_dir


def ids_of(output: Any, row: int) -> list[int]:
    return output.batch["input_ids"][row][output.batch["attention_mask"][row].bool()].tolist()


def test_pixels_and_placeholders_belong_together(rolled: tuple[Any, Any, Any]) -> None:
    output, _, model_dir = rolled
    processor = processor_of(model_dir)
    images: dict[str, list[Any]] = {"text": [], "tool": [TOOL], "both": [ASKED, TOOL, TOOL]}
    for row, kind in enumerate(KINDS):
        assert not output.non_tensor_batch[RECORD][row]["infra_failed"], output.non_tensor_batch[RECORD][row]["error"]
        inputs = output.non_tensor_batch["multi_modal_inputs"][row]
        placeholders = ids_of(output, row).count(processor.image_token_id)
        if not images[kind]:
            assert placeholders == 0
            assert "pixel_values" not in inputs
            continue
        expected = processor.image_processor(images=images[kind], return_tensors="pt")
        assert torch.equal(inputs["image_grid_thw"], expected["image_grid_thw"])
        assert torch.equal(inputs["pixel_values"], expected["pixel_values"])
        assert placeholders == int(expected["image_grid_thw"].prod(-1).sum()) // 4


def test_image_tokens_are_masked(rolled: tuple[Any, Any, Any]) -> None:
    output, _, model_dir = rolled
    image_id = processor_of(model_dir).image_token_id
    for row in range(len(KINDS)):
        responses, mask = output.batch["responses"][row], output.batch["response_mask"][row]
        assert not mask[responses == image_id].any()
        assert mask.any()
        assert not output.batch["rollout_log_probs"][row][responses == image_id].any()


def test_positions_are_the_models_own(rolled: tuple[Any, Any, Any]) -> None:
    from transformers import AutoModelForImageTextToText

    output, _, model_dir = rolled
    model = AutoModelForImageTextToText.from_pretrained(model_dir)
    for row in (1, 2):
        ids = torch.tensor([ids_of(output, row)])
        types_of = (ids == model.config.image_token_id).int()
        grid = output.non_tensor_batch["multi_modal_inputs"][row]["image_grid_thw"]
        expected, _ = model.model.get_rope_index(ids, types_of, image_grid_thw=grid)
        found = output.batch["position_ids"][row][1:, output.batch["attention_mask"][row].bool()]
        assert torch.equal(found, expected[:, 0])


def test_the_server_gets_the_images_of_its_prompt(rolled: tuple[Any, Any, Any]) -> None:
    output, given, model_dir = rolled
    image_id = processor_of(model_dir).image_token_id
    both = ids_of(output, 2)
    prompts = [(prompt, images) for prompt, images in given if both[: len(prompt)] == prompt]
    assert [images for _, images in prompts] == [[ASKED], [ASKED, TOOL], [ASKED, TOOL, TOOL]]
    assert [images for prompt, images in given if image_id not in prompt] == [None, None]
    prompt_mask = output.batch["attention_mask"][2][:PROMPT_LENGTH].bool()
    assert image_id in output.batch["prompts"][2][prompt_mask].tolist()
