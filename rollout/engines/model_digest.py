"""Whether two models, or two tokenizers, are the same, without reading gigabytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_PIECE_BYTES = 1 << 16


def model_digest(directory: Path) -> str:
    """Of the configuration, and of each weights file's name, size, beginning, middle and end. Blocks.

    Training changes weights all over, so that some of these bytes differ too.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256((directory / "config.json").read_bytes())
    for file in sorted(path for path in directory.iterdir() if path.suffix in _WEIGHTS):
        with file.open("rb") as weights:
            size = weights.seek(0, 2)
            digest.update(f"{file.name} {size} ".encode())
            for start in (0, size // 2, size - _PIECE_BYTES):
                weights.seek(max(0, start))
                digest.update(weights.read(_PIECE_BYTES))
    return digest.hexdigest()[:16]


def tokenizer_digest(tokenizer: Any) -> str | None:
    """Of the vocabulary and the chat template; None where there are none. Blocks."""
    if not hasattr(tokenizer, "get_vocab"):
        return None
    parts = [tokenizer.chat_template, sorted(tokenizer.get_vocab().items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
