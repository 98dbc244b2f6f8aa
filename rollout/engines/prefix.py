"""Compute the keys and values of a prefix that a batch shares (few-shot examples, tool lists) only once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

_MIN_TOKENS = 32  # a shorter prefix costs more to copy than to compute


class SharedPrefix:
    """Keeps the KV cache of the last shared prefix. Used by one thread."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._cache: Any = None

    def for_batch(self, model: Any, prompts: Sequence[list[int]]) -> tuple[Any, int]:
        """A cache of [B, heads, n, dim] for the n tokens that all prompts begin with, and n; (None, 0) without one.

        At least one token of each prompt is left, because the model must be run on something.
        """
        longest = min(len(prompt) for prompt in prompts) - 1
        shared = min(_common_length(prompts), longest)
        known = min(_common_length([self._ids, *prompts]), longest)
        if len(prompts) > 1 and shared >= _MIN_TOKENS and known < shared:
            self._compute(model, prompts[0][:shared])
            known = shared
        if known < _MIN_TOKENS:
            return None, 0
        cache = copy.deepcopy(self._cache)
        if known < len(self._ids):
            cache.crop(known)
        cache.batch_repeat_interleave(len(prompts))
        return cache, known

    def forget(self) -> None:
        """Drop what was computed with weights that are no longer the model's."""
        self._ids, self._cache = [], None

    def _compute(self, model: Any, ids: list[int]) -> None:
        self._ids = ids
        # Said, because models that see otherwise go on from the positions of the batch before.
        positions = torch.arange(len(ids))[None]
        given = {"input_ids": torch.tensor([ids]), "position_ids": positions}
        self._cache = model(**given, use_cache=True, logits_to_keep=1).past_key_values


def _common_length(prompts: Sequence[list[int]]) -> int:
    shortest, longest = min(prompts), max(prompts)  # in lexical order: what these two share, all share
    for position, (a, b) in enumerate(zip(shortest, longest, strict=False)):
        if a != b:
            return position
    return min(len(shortest), len(longest))
