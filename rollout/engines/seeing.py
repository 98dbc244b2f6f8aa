"""What a model that sees is given beside the ids: its images' features, and positions that follow their shape."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch


def see(
    model: Any,
    processor: Any,
    images: Sequence[Any],
    ids: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
) -> tuple[dict[str, Any], torch.Tensor]:
    """The model's further arguments for a batch of prompts, and its position ids.

    Args:
        images: of Pillow, row by row. ids, mask, positions: [B, L].

    Returns:
        Features as the image processor makes them (such as `pixel_values`, `image_grid_thw`); positions [B, L], or
        [3, B, L] (time, height, width) for models with rotary positions in three parts.
    """
    features = dict(processor.image_processor(images=list(images), return_tensors="pt"))
    rope_index = getattr(model.model, "get_rope_index", None)
    if rope_index is not None:
        given = {"input_ids": ids, "image_grid_thw": features["image_grid_thw"], "attention_mask": mask}
        if "mm_token_type_ids" in signature(rope_index).parameters:  # from transformers 5.3 on
            given["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
        positions, _ = rope_index(**given)
    return features, positions


def following(positions: torch.Tensor) -> torch.Tensor:
    """[..., B, 1]: the position after the last of [..., B, L], in each of its parts the same."""
    last = positions[..., -1:]
    if positions.ndim == 3:
        # An image at the very end reaches further in one part than in the others.
        last = positions.amax(dim=(0, -1))[None, :, None].expand_as(last)
    return last + 1
