"""Which engine a model's name means."""

from __future__ import annotations

from pathlib import Path

from ...schemas.errors import ConfigError
from .base import Engine
from .completions import CompletionsEngine
from .huggingface import HuggingFaceEngine


def engine_for(model: str | Path, tokenizer: Path | None = None, *, api_key: str | None = None) -> Engine:
    """An address is a vLLM server's, anything else a local model directory.

    Raises:
        ConfigError: an address without a tokenizer directory.
    """
    if "://" in str(model):
        if tokenizer is None:
            raise ConfigError("--tokenizer: needed with an address as --model: the prompt is rendered on this side")
        return CompletionsEngine(str(model), tokenizer, api_key=api_key)
    return HuggingFaceEngine(model)
