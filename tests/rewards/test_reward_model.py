"""A local reward model of random weights: what it says means nothing, how it is asked is real."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.reward_model import LocalRewardModel, chat_of
from rollbox.schemas.errors import ConfigError, InfraError
from rollbox.schemas.reward_config import RewardConfig, RewardModelPart
from rollbox.schemas.validation import validated

from .trajectories import trajectory


@pytest.fixture(scope="module")
def model_dir(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(tokenizer, tmp_path_factory.mktemp("reward-model"))


def _saved(tokenizer: Any, directory: Path, **fields: Any) -> Path:
    import torch
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    torch.manual_seed(0)
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_labels": 1,
        "pad_token_id": tokenizer.pad_token_id,
        **fields,
    }
    Qwen2ForSequenceClassification(Qwen2Config(**settings)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def rewards_of(model: Path, **fields: Any) -> RewardComposition:
    part = {"model": str(model), **fields}
    return RewardComposition(validated(RewardConfig, {"parts": {"reward_model": part}}, "rewards.yaml"))


def answers(number: int) -> list[str]:
    return ["9 - 8 = 1 and so on " * (1 + i % 3) + str(i) for i in range(number)]


async def test_batches_give_what_single_texts_give(model_dir: Path, tokenizer: Any) -> None:
    import torch
    from transformers import Qwen2ForSequenceClassification

    model = Qwen2ForSequenceClassification.from_pretrained(model_dir).eval()
    async with rewards_of(model_dir, batch_size=4, sigmoid=False) as rewards:
        found = await asyncio.gather(*(rewards.score(trajectory(answer)) for answer in answers(10)))
    for answer, reward in zip(answers(10), found, strict=True):
        ids = tokenizer.apply_chat_template(chat_of(trajectory(answer)), return_tensors="pt", return_dict=True)
        with torch.inference_mode():
            logit = float(model(**ids).logits)
        assert reward is not None
        assert reward.total == pytest.approx(logit, abs=1e-5)


async def test_a_sigmoid_squashes_the_logit(model_dir: Path) -> None:
    async with rewards_of(model_dir) as rewards:
        found = await rewards.score(trajectory())
    assert found is not None
    assert found.total == pytest.approx(1 / (1 + math.exp(-found.raw["reward_model/logit"])))


async def test_what_waits_is_scored_together(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    score = LocalRewardModel._score

    def counted(self: LocalRewardModel, chats: Any) -> list[float]:
        sizes.append(len(chats))
        return score(self, chats)

    monkeypatch.setattr(LocalRewardModel, "_score", counted)
    async with rewards_of(model_dir, batch_size=8) as rewards:
        await asyncio.gather(*(rewards.score(trajectory(answer)) for answer in answers(20)))
    assert sum(sizes) == 20
    assert max(sizes) == 8


async def test_a_fault_of_the_model_reaches_all_who_wait(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LocalRewardModel, chats: Any) -> list[float]:
        raise RuntimeError("out of memory")

    async with rewards_of(model_dir) as rewards:
        with monkeypatch.context() as patch:
            patch.setattr(LocalRewardModel, "_score", broken)
            found = await asyncio.gather(*(rewards.score(trajectory()) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in found] == [f"reward_model {model_dir}: RuntimeError: out of memory"] * 3
        assert all(isinstance(error, InfraError) for error in found)
        assert await rewards.score(trajectory()) is not None  # and it goes on


async def test_a_caller_that_leaves_does_not_stop_the_others(model_dir: Path) -> None:
    async with rewards_of(model_dir) as rewards:
        leaving = asyncio.create_task(rewards.score(trajectory()))
        staying = asyncio.create_task(rewards.score(trajectory()))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying is not None
        with pytest.raises(asyncio.CancelledError):
            await leaving


async def test_not_open_is_said(model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="not open; score inside `async with`"):
        await rewards_of(model_dir).score(trajectory())


async def opened(model: Path, **fields: Any) -> str:
    """What is said on opening it."""
    with pytest.raises(ConfigError) as caught:
        async with LocalRewardModel("rm", RewardModelPart(kind="reward_model", model=str(model), **fields)):
            pass
    return str(caught.value)


async def test_a_model_that_cannot_be_used_is_said_before_anything_is_scored(
    model_dir: Path, tokenizer: Any, tmp_path: Path
) -> None:
    assert "device: 'cuda:99' cannot be used" in await opened(model_dir, device="cuda:99")
    assert "device: 'nonsense' cannot be used" in await opened(model_dir, device="nonsense")
    small = _saved(tokenizer, tmp_path / "small", max_position_embeddings=64)
    assert "max_tokens: the model takes 64 at most (got 65)" in await opened(small, max_tokens=65)
    weights = small / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "cannot be loaded: " in await opened(small)


async def test_an_answer_is_cut_to_what_the_model_can_take(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = _saved(tokenizer, tmp_path, max_position_embeddings=64)
    async with LocalRewardModel("rm", RewardModelPart(kind="reward_model", model=str(small))) as model:
        lengths: list[int] = []
        forward = model._model.forward

        def seen(**batch: Any) -> Any:
            lengths.append(batch["input_ids"].shape[1])
            return forward(**batch)

        monkeypatch.setattr(model._model, "forward", seen)
        await model(trajectory("word " * 500))
    assert lengths == [64]


async def test_a_logit_that_is_no_number_is_named_whatever_squashes_it(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for logit in (math.inf, -math.inf, math.nan):
        monkeypatch.setattr(LocalRewardModel, "_score", lambda self, chats, logit=logit: [logit] * len(chats))
        async with rewards_of(model_dir) as rewards:
            with pytest.raises(InfraError, match="reward part 'reward_model"):
                await rewards.score(trajectory())


async def test_a_chat_model_is_no_reward_model(random_model_dir: Path, tokenizer: Any, tmp_path: Path) -> None:
    assert "is not a model directory" in await opened(tmp_path / "gone")
    assert "has no trained reward head: score.weight" in await opened(random_model_dir)
    assert "has 3 outputs; a reward model has one" in await opened(_saved(tokenizer, tmp_path / "three", num_labels=3))
    bare = _saved(tokenizer, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    assert "its tokenizer has no chat template" in await opened(bare)
