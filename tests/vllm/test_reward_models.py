"""Rewards from a real vLLM: a sequence classifier behind `/classify`, and a judge that is held to a form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.trajectory import trajectory_of_text
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.trajectory import Sample
from rollbox.schemas.validation import validated

from .conftest import VllmServer

MAX_MODEL_TOKENS = 512
ANSWERS = ["#### 5", "9 - 8 = 1 and so on " * 3, "No.", "3 + 4 = 7\n" * 40 + "#### 7"]


@pytest.fixture(scope="module")
def reward_model_dir(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=MAX_MODEL_TOKENS,
        num_labels=1,
        initializer_range=0.3,  # so that answers differ by more than the tolerance
        pad_token_id=tokenizer.pad_token_id,
    )
    directory = tmp_path_factory.mktemp("served-reward-model")
    Qwen2ForSequenceClassification(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def classifier(reward_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmServer]:
    log = tmp_path_factory.mktemp("vllm-logs") / "classifier.log"
    with VllmServer(reward_model_dir, log, "--runner", "pooling") as server:
        await server.ready()
        yield server


def rewards_of(**part: Any) -> RewardComposition:
    return RewardComposition(validated(RewardConfig, {"parts": {"mine": part}}, "rewards.yaml"))


async def scores(answers: list[str], **part: Any) -> list[float]:
    sample = Sample(sample_id="1", data_source="any", messages=[{"role": "user", "content": "How many?"}])
    async with rewards_of(**part) as rewards:
        found = await asyncio.gather(*(rewards.score(trajectory_of_text(sample, answer)) for answer in answers))
    assert all(found)
    return [reward.total for reward in found if reward is not None]


def served(server: VllmServer, **fields: Any) -> dict[str, Any]:
    return {"kind": "reward_model", "model": "tiny", "sigmoid": False, "service": {"url": server.url}, **fields}


@pytest.mark.parametrize("writer", ["its template", "our tokenizer"])
async def test_the_server_says_what_the_model_says_here(
    writer: str, classifier: VllmServer, reward_model_dir: Path
) -> None:
    here = await scores(ANSWERS, kind="reward_model", model=str(reward_model_dir), sigmoid=False)
    fields = {"tokenizer": str(reward_model_dir)} if writer == "our tokenizer" else {}
    there = await scores(ANSWERS, **served(classifier, **fields))
    assert max(here) - min(here) > 0.1
    assert there == pytest.approx(here, abs=1e-3)


async def test_what_is_too_long_is_cut_at_the_front(classifier: VllmServer, reward_model_dir: Path) -> None:
    long = ["word " * 2000 + "#### 5", "other " * 2000 + "#### 7"]
    cut = {"max_tokens": 200}
    here = await scores(long, kind="reward_model", model=str(reward_model_dir), sigmoid=False, **cut)
    for fields in ({}, {"tokenizer": str(reward_model_dir)}):
        assert await scores(long, **served(classifier, **cut, **fields)) == pytest.approx(here, abs=1e-3)
    assert len(await scores(long, **served(classifier))) == 2  # to what the model takes


async def test_a_model_that_is_not_there_is_named(classifier: VllmServer) -> None:
    with pytest.raises(ConfigError, match=r"answered 404: .*nobody"):
        await scores(["#### 5"], **{**served(classifier), "model": "nobody"})


async def test_a_judge_that_is_held_to_a_form_gives_a_score(server: VllmServer) -> None:
    part = {"kind": "rubric", "model": "tiny", "rubric": "Is it short?", "service": {"url": server.url, "retries": 0}}
    form = {"structured_outputs": {"regex": "Yes\\.\nScore: 7"}}
    assert await scores(["#### 5", "No."], **part, max_tokens=64, extra_body=form) == pytest.approx([0.7, 0.7])
