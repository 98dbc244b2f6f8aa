"""How much an engine may generate behind a prompt."""

from __future__ import annotations

from ...schemas.errors import EngineError
from ...schemas.generation import SamplingParams


def tokens_allowed(prompt_ids: list[int], sampling: SamplingParams, max_context: int) -> int:
    """`max_tokens`, or what the context still holds.

    Raises:
        EngineError: the prompt is empty or fills the context.
    """
    if not 0 < len(prompt_ids) < max_context:
        raise EngineError(f"prompt of {len(prompt_ids)} tokens; the context holds {max_context}")
    return min(sampling.max_tokens, max_context - len(prompt_ids))
