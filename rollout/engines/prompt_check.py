"""Whether an engine made the same tokens of a prompt's images as the model's processor did here."""

from __future__ import annotations

from collections.abc import Sequence

from ...schemas.errors import EngineError


def check_prompt(ours: Sequence[int], theirs: Sequence[int] | None, engine: str) -> None:
    """
    Raises:
        EngineError: the prompts differ, so that what is recorded would not be what was continued.
    """
    if theirs is not None and list(theirs) != list(ours):
        raise EngineError(
            f"{engine} made {len(theirs)} tokens of a prompt with images that has {len(ours)} here: its processor is "
            "set otherwise (min_pixels, max_pixels) than the one in the model's directory"
        )
