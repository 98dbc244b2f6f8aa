"""The tokenizer of a model that is served elsewhere: loaded from a local directory, or none at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ...schemas.errors import ConfigError
from ..chat_template import Tokenizer


def load_tokenizer(directory: str | Path, chat_template: str | None = None) -> Tokenizer:
    """Load from disk only. Blocks; needs transformers.

    Args:
        chat_template: a Jinja template that replaces the tokenizer's own.

    Raises:
        ConfigError: there is no tokenizer, or none with a chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    except Exception as error:
        raise ConfigError(f"tokenizer: cannot load {directory}: {error}") from error
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    if tokenizer.chat_template is None:
        raise ConfigError(f"tokenizer: {directory} has no chat_template; give one")
    return cast(Tokenizer, tokenizer)


class Untokenized:
    """For a chat server whose tokenizer is not known: no text has any tokens, so that none are made up."""

    eos_token: str | None = ""
    eos_token_id: int | None = -1

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return []

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return ""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> Any:
        return json.dumps(conversation, default=str)
