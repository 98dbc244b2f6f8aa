"""Teaching: the loss falls, the result is reproducible, and the cache builds once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from rollbox.demo import teach as teaching
from rollbox.demo.questions import lessons, tool_list
from rollbox.demo.teach import TeachConfig, ensure_demo_model, model_key, teach


def _losses(tokenizer: Any, config: TeachConfig) -> list[float]:
    losses: list[float] = []
    teach(tokenizer, config, on_progress=lambda done, total, loss: losses.append(loss))
    return losses


def test_loss_falls_and_repeats(tokenizer: Any) -> None:
    config = TeachConfig(steps=40, batch_tokens=600, drill_share=0.1)
    losses = _losses(tokenizer, config)
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.5 * sum(losses[4:9])
    assert _losses(tokenizer, config) == losses


def test_leaves_torch_as_it_was(tokenizer: Any) -> None:
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    teach(tokenizer, TeachConfig(steps=1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_model_is_cached_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    calls: list[tuple[int, int]] = []
    monkeypatch.setenv("ROLLBOX_CACHE", str(tmp_path))
    directory = ensure_demo_model(steps=2, on_progress=lambda done, total, loss: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]
    assert directory.parent == tmp_path
    assert ensure_demo_model(steps=2, on_progress=lambda *_: pytest.fail("taught again")) == directory

    model, loaded = AutoModelForCausalLM.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
    messages = lessons("heldout", 1, seed=1)[0].sample.messages
    prompt = loaded.apply_chat_template(
        messages, tools=tool_list(), add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    assert model.config.model_type == "qwen2"
    assert model.generation_config.eos_token_id == loaded.eos_token_id
    assert model(**prompt).logits.shape[-1] == len(loaded)


def test_key_follows_the_config_and_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = model_key(TeachConfig())
    assert model_key(TeachConfig()) == key
    assert model_key(TeachConfig(seed=1)) != key
    monkeypatch.setattr(teaching, "_SOURCES", teaching._SOURCES[:-1])
    assert model_key(TeachConfig()) != key


def test_every_module_it_learns_from_is_in_the_key() -> None:
    folder = Path(teaching.__file__).parent
    named = {"drills", "exercises", "muon", "problems", "questions", "teach", "tokenizer", "wordings"}
    assert {Path(source).stem for source in teaching._SOURCES} == {*named, "chatml_hermes"}
    assert all((folder / source).is_file() for source in teaching._SOURCES)


def test_muon_steps_are_nearly_orthogonal() -> None:
    import torch

    from rollbox.demo.muon import Muon, orthogonalised

    matrices = torch.randn(3, 8, 32, generator=torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(orthogonalised(matrices))
    assert singular.min() > 0.5
    assert singular.max() < 1.5
    with pytest.raises(ValueError, match="gradient"):
        Muon([torch.nn.Parameter(torch.zeros(2, 2))]).step(0.1)
