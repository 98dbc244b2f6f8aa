"""Tiny models that see, of random weights: how they compute is real, and so are their processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollbox.rollout.vision.processor import load_processor

# The rules of Qwen2.5-VL's template, written down anew: parts of a message in their order, an image as one placeholder
# between two marks; with hermes tools and tool output in a user's turn.
QWEN_VL = """
{%- macro content_of(content) %}
{%- if content is string %}{{ content }}
{%- else %}
{%- for part in content %}
{%- if part.type == "image" %}<|vision_start|><|image_pad|><|vision_end|>{% elif part.text %}{{ part.text }}{% endif %}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- if tools %}<|im_start|>system
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{%- if loop.first or messages[loop.index0 - 1].role != "tool" %}<|im_start|>user{% endif %}
<tool_response>
{{ content_of(message.content) }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}<|im_end|>
{% endif %}
{%- else %}<|im_start|>{{ message.role }}
{{ content_of(message.content) }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}""".removeprefix("\n")

LLAVA = QWEN_VL.replace("<|vision_start|><|image_pad|><|vision_end|>", "<image>\n")
_MARKS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_MIN_PIXELS, _MAX_PIXELS = 28 * 28 * 2, 28 * 28 * 24


def seeing_tokenizer(marks: list[str], template: str) -> Any:
    from rollbox.demo.tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.chat_template = template
    return tokenizer


def _text_config(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 1024,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "pad_token_id": tokenizer.pad_token_id,
    }


def make_qwen2_vl(directory: Path) -> None:
    """Qwen2-VL: pictures of any size become 2 to 24 tokens, and rotary positions in three parts."""
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    tokenizer = seeing_tokenizer(_MARKS, QWEN_VL)
    start, end, image, video = (tokenizer.convert_tokens_to_ids(mark) for mark in _MARKS)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
    vision = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2}
    config = Qwen2VLConfig(
        text_config={**_text_config(tokenizer), "rope_parameters": rope, "rope_scaling": rope},
        vision_config=vision,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    _save(Qwen2VLForConditionalGeneration(config), tokenizer, directory)
    scaling = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    # Written out as published models have it: vLLM reads the file itself and knows no defaults.
    norm = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    # The names under which older and newer releases look for the limits.
    limits = {"min_pixels": _MIN_PIXELS, "max_pixels": _MAX_PIXELS}
    sizes = {"size": {"shortest_edge": _MIN_PIXELS, "longest_edge": _MAX_PIXELS}}
    processor = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor"}
    _write(directory / "preprocessor_config.json", {**processor, **scaling, **norm, **limits, **sizes})
    _write(directory / "video_preprocessor_config.json", {"video_processor_type": "Qwen2VLVideoProcessor", **scaling})


def make_llava(directory: Path) -> None:
    """LLaVA: every picture is cut to 28 x 28 pixels, which are four tokens."""
    import torch
    from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, Qwen2Config

    tokenizer = seeing_tokenizer(["<image>"], LLAVA)
    vision = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=Qwen2Config(**_text_config(tokenizer)),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        image_seq_length=4,
    )
    torch.manual_seed(0)
    _save(LlavaForConditionalGeneration(config), tokenizer, directory)
    size = {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}
    image_config = {"image_processor_type": "CLIPImageProcessor", "processor_class": "LlavaProcessor", **size}
    _write(directory / "preprocessor_config.json", image_config)
    own = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    _write(directory / "processor_config.json", {"processor_class": "LlavaProcessor", "image_token": "<image>", **own})


MAKERS = {"qwen2-vl": make_qwen2_vl, "llava": make_llava}


def processor_of(directory: Path) -> Any:
    """The processor of a directory, with the tokenizer that lies there."""
    from transformers import AutoTokenizer

    return load_processor(directory, AutoTokenizer.from_pretrained(directory))


def picture(width: int, height: int, seed: int = 0) -> Any:
    """An RGB image of noise, so that every pixel counts."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels, "RGB")


def _save(model: Any, tokenizer: Any, directory: Path) -> None:
    import torch

    # As they are made, weights are so small that neither positions nor pixels would be seen in what comes out.
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.mul_(6)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content))
