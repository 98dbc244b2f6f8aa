"""Backoff: how long a client waits before it tries again."""

from __future__ import annotations

import random

from ..schemas.errors import InfraError, OverloadedError

_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0


def pause_s(error: InfraError, retries: int) -> float:
    """Exponential, with full jitter, so that clients refused together do not come back together."""
    ceiling_s: float = min(_BACKOFF_S * 2 ** min(retries, 16), _BACKOFF_MAX_S)
    if isinstance(error, OverloadedError):
        ceiling_s = max(ceiling_s, min(error.retry_after_s, _BACKOFF_MAX_S))
    return random.uniform(0.1 * ceiling_s, ceiling_s)
