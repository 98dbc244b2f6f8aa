"""No text that a model can write stops a run on its way to a scoring server, real HTTP included."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given, settings

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.trajectory import trajectory_of_text
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.surrogates import without_lone_surrogates
from rollbox.schemas.validation import validated

from ..odd_texts import ODD_TEXTS, strict
from .scoring_server import scripted_server
from .trajectories import sample, trajectory

SERVED: dict[str, Any] = {
    "api": {"kind": "api", "service": {"url": "{}/score"}},
    "steps": {"kind": "steps", "service": {"url": "{}"}},
}
JUDGES: dict[str, Any] = {
    "rubric": {"kind": "rubric", "model": "m", "rubric": "Is it right?", "service": {"url": "{}"}},
    "reward_model": {"kind": "reward_model", "model": "m", "service": {"url": "{}"}},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "rollbox.cli", "reward", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def rewards_of(parts: dict[str, Any], url: str) -> RewardComposition:
    filled = {
        name: {**part, "service": {"url": part["service"]["url"].format(url)}, "weight": 1.0}
        for name, part in parts.items()
    }
    return RewardComposition(validated(RewardConfig, {"parts": filled}, "rewards.yaml"))


@settings(deadline=None, max_examples=40)
@given(ODD_TEXTS)
@example("\ud83d")
@example("\ud83d\ude00")
def test_any_client_of_the_server_gets_a_score(url: str, text: str) -> None:
    """Most write JSON by `json.dumps`, which writes half a pair as `\\ud83d`."""
    item = {"data_source": "openai/gsm8k", "ground_truth": "5", "extra_info": {text: text}}
    item["solution_str"] = f"{text}\n#### 5"
    item["messages"] = [{"role": "user", "content": text}]

    async def ask() -> None:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/score", json=item) as response:
                assert (response.status, (await response.json())["score"]) == (200, 1.1)
            async with session.post(f"{url}/v1/score/batch", json={"items": [item, item]}) as response:
                assert [result["score"] for result in (await response.json())["results"]] == [1.1, 1.1]

    asyncio.run(ask())


@settings(deadline=None, max_examples=40)
@given(ODD_TEXTS, ODD_TEXTS)
@example("\ud83d", "\udfff")
def test_our_own_parts_get_a_score(url: str, text: str, elsewhere: str) -> None:
    made = trajectory(f"{text}\n#### 5", of=sample(note=elsewhere, more=(elsewhere, {elsewhere: 1})))
    made.sample.messages[0]["content"] = elsewhere
    made.messages[0]["content"] = elsewhere

    async def score() -> None:
        async with rewards_of(SERVED, url) as rewards:
            found = await rewards.score(made)
        assert found is not None
        assert found.raw["api"] == 1.1
        assert found.raw["steps/steps"] >= 1

    asyncio.run(score())


@settings(deadline=None, max_examples=40)
@given(ODD_TEXTS)
@example("\ud83d")
@example("\ud83d\ude00")
def test_a_judge_and_a_reward_model_get_what_they_take(text: str) -> None:
    answer = {"choices": [{"message": {"content": "Score: 10"}}], "data": [{"probs": [0.0]}]}
    made = trajectory_of_text(sample(), text)
    made.sample.messages[0]["content"] = text

    async def score() -> None:
        async with scripted_server(strict(lambda body: answer)) as server, rewards_of(JUDGES, server.url) as rewards:
            found = await rewards.score(made)
        assert found is not None
        assert (found.raw["rubric"], found.raw["reward_model"]) == (1.0, 0.5)
        said = [body["messages"][-1]["content"] for _, body in server.seen]
        assert any("\ufffd" in content for content in said) or "\ufffd" not in without_lone_surrogates(text)

    asyncio.run(score())


def test_a_dry_run_scores_it(tmp_path: Path) -> None:
    data, responses = tmp_path / "data.jsonl", tmp_path / "responses.jsonl"
    data.write_text('{"question": "How many?", "answer": "5", "data_source": "openai/gsm8k"}\n')
    responses.write_text(json.dumps({"response": "a\ud83d\0b\n#### 5"}) + "\n")
    command = [sys.executable, "-m", "rollbox.cli", "reward", "dry-run", str(data), "--responses", str(responses)]
    command += ["--histogram", str(tmp_path / "rewards.png")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
