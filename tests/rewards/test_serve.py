"""`rollbox reward serve`: a real server, asked by our own client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.serve import serve
from rollbox.rewards.trajectory import default_rewards
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.validation import validated

from .trajectories import trajectory

FILE = """
modules: [broken.py]
parts: {outcome: , format: {weight: 0.1}}
"""
BROKEN = """
from rollbox.rewards.registry import score

@score("test/serve_broken")
def broken(solution_str, ground_truth, extra_info):
    raise RuntimeError("no luck")
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "rewards.yaml").write_text(FILE)
    (folder / "broken.py").write_text(BROKEN)
    command = [sys.executable, "-m", "rollbox.cli", "reward", "serve", "--port", "0", "--rewards"]
    process = subprocess.Popen([*command, str(folder / "rewards.yaml")], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("rewards on http://"), line
        yield line.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


async def ask(url: str, path: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as response:
        return response.status, await response.json(content_type=None)


def item(solution_str: str = "#### 5", data_source: str = "openai/gsm8k", ground_truth: Any = "5") -> dict[str, Any]:
    return {"data_source": data_source, "solution_str": solution_str, "ground_truth": ground_truth}


async def test_one_answer(url: str) -> None:
    status, body = await ask(url, "/score", item())
    assert (status, body) == (
        200,
        {"score": 1.1, "correct": True, "parts": {"outcome": 1.0, "format": 1.0}, "error": None},
    )


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "data_source: Field required"),
        (item(data_source="nope"), 422, "no score for 'nope'"),
        (item(ground_truth=None), 422, "ground_truth is missing"),
        (item(ground_truth="many"), 422, "must hold one number"),
        (item(data_source="test/serve_broken"), 503, "raised RuntimeError: no luck"),
    ],
)
async def test_what_is_at_fault_is_said(url: str, body: Any, status: int, said: str) -> None:
    found, answer = await ask(url, "/score", body)
    assert found == status
    assert said in answer["detail"]


async def test_a_batch_answers_each(url: str) -> None:
    items = [item(), item("#### 4"), item(data_source="test/serve_broken")]
    status, body = await ask(url, "/v1/score/batch", {"items": items})
    assert status == 200
    assert [result["score"] for result in body["results"]] == [1.1, 0.1, None]
    assert "no luck" in body["results"][2]["error"]


async def test_health_and_the_client(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(url + "/v1/health") as response:
        assert (await response.json())["status"] == "ok"
    config = {"parts": {"api": {"service": {"url": url + "/score"}}}}
    async with RewardComposition(validated(RewardConfig, config, "")) as rewards:
        found = await asyncio.gather(*(rewards.score(trajectory()) for _ in range(50)))
    assert [reward.total for reward in found if reward is not None] == [1.1] * 50


def test_others_need_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLBOX_SANDBOX_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="can be reached from other machines, and no token is set"):
        serve(default_rewards(), "0.0.0.0", 0)


def test_a_rewards_file_that_is_wrong_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rollbox.cli", "reward", "serve", "--rewards", str(tmp_path / "gone.yaml")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 2
    assert "gone.yaml: cannot be read" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_part_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "rewards.yaml"
    file.write_text(f"parts: {{rm: {{kind: reward_model, model: {tmp_path}}}}}\n")
    command = [sys.executable, "-m", "rollbox.cli", "reward", "serve", "--port", "0", "--rewards", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"rollbox: reward_model: {tmp_path} is not a model directory\n"
