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
    ids = [_pick(logprobs[row], params[row], generators[row]) for row in range(logits.shape[0])]
    if scaled_logprobs:
        temperatures = torch.tensor([row.temperature or 1.0 for row in params])
        logprobs = torch.log_softmax(logits.float() / temperatures[:, None], dim=-1)
    return ids, logprobs.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def _pick(logprobs: torch.Tensor, params: SamplingParams, generator: torch.Generator | None) -> int:
    if params.temperature == 0:
        return int(logprobs.argmax())
    probabilities = torch.softmax(logprobs / params.temperature, dim=-1)
    if params.top_k or params.top_p < 1:
        probabilities = _narrow(probabilities, params)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _narrow(probabilities: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Keep the top-k, then the smallest set whose probability reaches top_p (Holtzman et al., 2019)."""
    ordered, order = probabilities.sort(descending=True)
    if params.top_k:
        ordered[params.top_k :] = 0
    total = ordered.sum()
    # A token is kept while the mass before it is short of top_p, so the one that crosses the line stays.
    ordered[(ordered.cumsum(0) - ordered) >= params.top_p * total] = 0
    return torch.zeros_like(probabilities).scatter_(0, order, ordered)
