"""Engines by what a command line says: `hf:DIR`, `vllm:DIR`, or the address of a server."""

from __future__ import annotations

import os
from pathlib import Path

from ...schemas.errors import ConfigError
from .base import AnyEngine

LOCAL_KINDS = ("hf", "vllm")
SERVER_KINDS = ("completions", "sglang", "chat")
KINDS = LOCAL_KINDS + SERVER_KINDS


def get_engine(
    spec: str | Path,
    kind: str | None = None,
    *,
    tokenizer_dir: str | Path | None = None,
    model: str | None = None,
    api_key: str | None = None,
    chat_template: str | None = None,
    takes_images: bool | None = None,
) -> AnyEngine:
    """The engine for `spec`, not started yet.

    Args:
        spec: a model directory, or base addresses of equal servers separated by commas. `KIND:` may stand before it.
        kind: `hf` (the default for a directory), `vllm` (in process), `completions` (the default for an address: vLLM's
            `/v1/completions`), `sglang`, `chat` (any OpenAI-compatible server; not token-exact).
        tokenizer_dir: for servers, whose prompts are rendered on this side; optional for `chat`.
        model: the name that a server knows it by; None asks the server. Not for a directory.
        api_key: for servers; by default `$OPENAI_API_KEY`.
        takes_images: for `chat`, see `OpenAIChatEngine`. The others know it from the model's or tokenizer's directory.

    Raises:
        ConfigError: an unknown kind, one that does not fit `spec` or is not installed, a tokenizer that is missing or
            not needed.
    """
    kind, target = _resolve(str(spec), kind)
    if takes_images is not None and kind != "chat":
        raise ConfigError(f"images: the engine {kind!r} knows it from its model's files; leave it out")
    if kind in LOCAL_KINDS:
        _refuse("tokenizer", tokenizer_dir, kind)
        return _local(kind, target, chat_template)
    if kind != "chat" and tokenizer_dir is None:
        raise ConfigError("--tokenizer: needed with an address as --model: the prompt is rendered on this side")
    key = api_key or os.environ.get("OPENAI_API_KEY")
    if kind == "chat":
        from .openai_chat import OpenAIChatEngine

        return OpenAIChatEngine(
            *(target, tokenizer_dir), model=model, api_key=key, chat_template=chat_template, takes_images=takes_images
        )
    assert tokenizer_dir is not None
    return _server(kind, target, tokenizer_dir, model, key, chat_template)


def model_setting(spec: str | Path, kind: str | None = None) -> str:
    """How the settings of a run name the model: of servers not the address, where another may stand tomorrow.

    Raises:
        ConfigError: as `get_engine`.
    """
    kind, target = _resolve(str(spec), kind)
    return f"{kind}:{target}" if kind in LOCAL_KINDS else kind


def _resolve(spec: str, kind: str | None) -> tuple[str, str]:
    prefix, _, rest = spec.partition(":")
    if prefix in KINDS:
        if kind not in (None, prefix):
            raise ConfigError(f"engine: {kind!r} is asked for, but the model is given as {spec!r}")
        kind, spec = prefix, rest
    is_address = "://" in spec
    kind = kind or ("completions" if is_address else "hf")
    if kind not in KINDS:
        raise ConfigError(f"engine: no engine {kind!r}; there are: {', '.join(KINDS)}")
    if is_address == (kind in LOCAL_KINDS):
        wanted = "a model directory" if kind in LOCAL_KINDS else "an address such as http://127.0.0.1:8000"
        raise ConfigError(f"model: {spec!r} is not {wanted}, which the engine {kind!r} needs")
    return kind, spec


def _refuse(name: str, value: object, kind: str) -> None:
    if value is not None:
        raise ConfigError(f"{name}: not used by the engine {kind!r}, which reads its model's directory; leave it out")


def _local(kind: str, directory: str, chat_template: str | None) -> AnyEngine:
    if kind == "vllm":
        from .vllm import VllmEngine

        return VllmEngine(directory, chat_template=chat_template)
    try:
        from .huggingface import HuggingFaceEngine
    except ImportError as error:
        raise ConfigError(f"engine hf: {error}; install it with: pip install 'rollbox[rollout]'") from error

    return HuggingFaceEngine(directory, chat_template=chat_template)


def _server(
    kind: str,
    urls: str,
    tokenizer_dir: str | Path,
    model: str | None,
    api_key: str | None,
    chat_template: str | None,
) -> AnyEngine:
    if kind == "sglang":
        from .sglang import SGLangEngine

        return SGLangEngine(urls, tokenizer_dir, api_key=api_key, chat_template=chat_template)
    from .completions import CompletionsEngine

    return CompletionsEngine(urls, tokenizer_dir, model=model, api_key=api_key, chat_template=chat_template)
