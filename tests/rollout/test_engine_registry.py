"""Which engine a command line's words stand for."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.engines.openai_chat import OpenAIChatEngine
from rollbox.rollout.engines.registry import get_engine, model_setting
from rollbox.rollout.engines.sglang import SGLangEngine
from rollbox.rollout.engines.vllm import VllmEngine
from rollbox.schemas.errors import ConfigError

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("spec", "kind", "expected"),
    [
        ("some/dir", None, HuggingFaceEngine),
        ("hf:some/dir", None, HuggingFaceEngine),
        ("vllm:some/dir", None, VllmEngine),
        ("some/dir", "vllm", VllmEngine),
        ("vllm:some/dir", "vllm", VllmEngine),
        (URL, None, CompletionsEngine),
        (f"{URL},http://other:1", None, CompletionsEngine),
        (URL, "sglang", SGLangEngine),
        (f"sglang:{URL}", None, SGLangEngine),
        (URL, "chat", OpenAIChatEngine),
    ],
)
def test_each_spec_gets_its_engine(spec: str, kind: str | None, expected: type) -> None:
    engine = get_engine(spec, kind, tokenizer_dir="tok" if "://" in spec else None)
    assert type(engine) is expected


@pytest.mark.parametrize(
    ("spec", "kind", "setting"),
    [
        ("some/dir", None, "hf:some/dir"),
        ("hf:some/dir", None, "hf:some/dir"),
        ("some/dir", "vllm", "vllm:some/dir"),
        (URL, None, "completions"),
        (f"sglang:{URL},http://other:1", None, "sglang"),
        (URL, "chat", "chat"),
    ],
)
def test_a_run_is_the_same_where_only_the_servers_address_changed(spec: str, kind: str | None, setting: str) -> None:
    assert model_setting(spec, kind) == setting


def test_chat_does_without_a_tokenizer() -> None:
    assert isinstance(get_engine(f"chat:{URL}"), OpenAIChatEngine)


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        (URL, {}, "--tokenizer: needed with an address"),
        (URL, {"kind": "sglang"}, "--tokenizer: needed with an address"),
        ("some/dir", {"kind": "nope"}, "no engine 'nope'; there are: hf, vllm"),
        ("hf:some/dir", {"kind": "vllm"}, "'vllm' is asked for, but the model is given as 'hf:some/dir'"),
        ("some/dir", {"kind": "chat"}, "'some/dir' is not an address"),
        (URL, {"kind": "vllm"}, "is not a model directory"),
        ("some/dir", {"tokenizer_dir": "tok"}, "tokenizer: not used by the engine 'hf'"),
        ("http://", {"tokenizer_dir": "tok"}, "'http://' is not an address"),
        (f"{URL},model_url", {"tokenizer_dir": "tok"}, "'model_url' is not an address"),
    ],
)
def test_what_does_not_fit_is_named(spec: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        get_engine(spec, **options)
    assert said in str(error.value)


def test_a_missing_torch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rollbox.rollout.engines.huggingface", None)  # whose import is that of torch
    with pytest.raises(ConfigError, match=r"engine hf: .*; install it with: pip install 'rollbox\[rollout\]'"):
        get_engine("a_folder")


async def test_a_missing_vllm_is_said(random_model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match="vllm: cannot be imported"):
        async with VllmEngine(random_model_dir):
            pass
    with pytest.raises(ConfigError, match="is not a model directory"):
        async with VllmEngine("/nonexistent"):
            pass
