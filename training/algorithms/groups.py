"""Normalise values within groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch

EPSILON = 1e-6


def normalised_in_groups(values: torch.Tensor, groups: Sequence[Hashable], by_std: bool = True) -> torch.Tensor:
    """(value - mean) / (std + 1e-6) within each group; std is the sample's (n - 1). A group of one becomes 0.

    verl's GRPO leaves a group of one as it is. Here a trajectory without a partner has nothing to be better than.

    Args:
        values: [N]. groups: N keys. by_std: False takes the mean away only (Dr. GRPO, arXiv 2503.20783).
    """
    members: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[group].append(position)
    found = torch.zeros_like(values)
    for positions in members.values():
        if len(positions) > 1:
            chosen = values[positions]
            centred = chosen - chosen.mean()
            found[positions] = centred / (chosen.std() + EPSILON) if by_std else centred
    return found


def whitened(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(value - mean) / sqrt(variance + 1e-8) over the tokens of the mask; 0 elsewhere. [B, T] both.

    The variance is the sample's (n - 1), as verl's `masked_whiten`.
    """
    mask = mask.to(values.dtype)
    number = mask.sum()
    if number < 2:
        return torch.zeros_like(values)
    mean = (values * mask).sum() / number
    variance = (((values - mean) * mask) ** 2).sum() / (number - 1)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask
