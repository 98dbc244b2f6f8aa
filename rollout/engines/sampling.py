"""Draw one token per row from a batch of logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...schemas.generation import SamplingParams


def sample(
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    generators: Sequence[torch.Generator | None],
    *,
    scaled_logprobs: bool = False,
) -> tuple[list[int], list[float]]:
    """Sample a token for each row.

    Args:
        logits: [B, V] float. params, generators: one per row; a generator makes the row reproducible.
        scaled_logprobs: log-probabilities are at the row's temperature, as a trainer computes them, and not at 1.

    Returns:
        B ids, and B natural-log probabilities under the model, before top-k and top-p.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    ids = torch.empty(len(params), dtype=torch.long)
    for rows, generator in _alike(params, generators):
        ids[rows] = _pick(logprobs[rows], params[rows[0]], generator)
    if scaled_logprobs:
        temperatures = torch.tensor([row.temperature or 1.0 for row in params])
        logprobs = torch.log_softmax(logits.float() / temperatures[:, None], dim=-1)
    return ids.tolist(), logprobs.gather(1, ids[:, None])[:, 0].tolist()


def _alike(
    params: Sequence[SamplingParams], generators: Sequence[torch.Generator | None]
) -> list[tuple[list[int], torch.Generator | None]]:
    """Rows that can be drawn together: a batch drawn row by row costs half as much again as its forward pass."""
    together: dict[tuple[float, float, int], list[int]] = {}
    alone: list[tuple[list[int], torch.Generator | None]] = []
    for row, (each, generator) in enumerate(zip(params, generators, strict=True)):
        if generator is not None:
            alone.append(([row], generator))
        else:
            together.setdefault((each.temperature, each.top_p, each.top_k), []).append(row)
    return [*((rows, None) for rows in together.values()), *alone]


def _pick(logprobs: torch.Tensor, params: SamplingParams, generator: torch.Generator | None) -> torch.Tensor:
    """[n] ids for [n, V] log-probabilities."""
    if params.temperature == 0:
        return logprobs.argmax(-1)
    probabilities = torch.softmax(logprobs / params.temperature, dim=-1)
    if params.top_k or params.top_p < 1:
        probabilities = _narrow(probabilities, params)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def _narrow(probabilities: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Keep the top-k, then the smallest set whose probability reaches top_p (Holtzman et al., 2019)."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    if params.top_k:
        ordered[:, params.top_k :] = 0
    total = ordered.sum(-1, keepdim=True)
    # A token is kept while the mass before it is short of top_p, so the one that crosses the line stays.
    ordered[(ordered.cumsum(-1) - ordered) >= params.top_p * total] = 0
    return torch.zeros_like(probabilities).scatter_(-1, order, ordered)
