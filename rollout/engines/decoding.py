"""Decode a batch of prompts of different lengths with a KV cache, dropping rows as they finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ...schemas.generation import FinishReason, SamplingParams, TokenOutput
from .prefix import SharedPrefix
from .sampling import sample
from .seeing import following, see


@dataclass(slots=True)
class Row:
    """One sequence in a batch. `cancelled` is asked before each step.

    Attributes:
        images: of Pillow, in the order of the prompt.
    """

    prompt_ids: list[int]
    params: SamplingParams
    stop_ids: frozenset[int]
    images: list[Any] = field(default_factory=list)
    cancelled: Callable[[], bool] = lambda: False
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def take(self, token_id: int, logprob: float, room: int) -> None:
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if token_id in self.stop_ids:
            self.finish_reason = "stop"
        elif len(self.token_ids) >= min(self.params.max_tokens, room):
            self.finish_reason = "length"

    def output(self) -> TokenOutput:
        return TokenOutput(
            token_ids=self.token_ids, logprobs=self.logprobs, finish_reason=self.finish_reason or "length"
        )


@torch.inference_mode()
def decode(
    model: Any,
    rows: list[Row],
    pad_id: int,
    max_context: int,
    finished: Callable[[Row], None],
    prefix: SharedPrefix | None = None,
    *,
    processor: Any = None,
    scaled_logprobs: bool = False,
) -> None:
    """Generate for all rows; `finished` is called with each as soon as it is done.

    Args:
        processor: the model's, needed where a row has images.

    What follows the shared prefix is padded on the left, so that all rows write their next token at the same position
    of the cache; padding is masked, and position ids count real tokens only.
    """
    images = [image for row in rows for image in row.images]
    # The same ids may stand for different images, so nothing is shared then.
    shared = prefix if prefix is not None and not images else None
    cache, known = shared.for_batch(model, [row.prompt_ids for row in rows]) if shared else (None, 0)
    ids, mask = _pad_left([row.prompt_ids[known:] for row in rows], pad_id)
    mask = torch.cat([mask.new_ones((len(rows), known)), mask], dim=1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, known:]
    features: dict[str, Any] = {}
    if images:
        features, positions = see(model, processor, images, ids, mask, positions)
    generators = [_generator(row.params) for row in rows]
    while rows:
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **features,
        )
        features = {}  # the cache holds what the model saw
        cache = out.past_key_values
        params = [row.params for row in rows]
        tokens, logprobs = sample(out.logits[:, -1], params, generators, scaled_logprobs=scaled_logprobs)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            row.take(token, logprob, max_context - len(row.prompt_ids))
        alive = [i for i, row in enumerate(rows) if row.finish_reason is None and not row.cancelled()]
        for i, row in enumerate(rows):
            if i not in alive:
                finished(row)
        if len(alive) < len(rows) and alive:
            cache.batch_select_indices(torch.tensor(alive))
            mask, positions = mask[alive], positions[..., alive, :]
        rows, generators = [rows[i] for i in alive], [generators[i] for i in alive]
        ids = torch.tensor([[row.token_ids[-1]] for row in rows])
        mask = torch.cat([mask, mask.new_ones((mask.shape[0], 1))], dim=1)
        positions = following(positions)


def _pad_left(rows: list[list[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, L] ids and mask."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def _generator(params: SamplingParams) -> torch.Generator | None:
    return None if params.seed is None else torch.Generator().manual_seed(params.seed)
