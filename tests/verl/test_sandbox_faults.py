"""`rollbox_agent` while the sandbox is away: at the start, in the middle of a run, and back again."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

import rollbox.training.plugin  # noqa: F401 - registers the loop and the reward manager
from rollbox.training.batch_rows import RECORD

from ..sandbox.server_process import ServerProcess, serving
from .in_process import SHIPPED, batch, call, close_tools, compose_config, make_worker

pytestmark = pytest.mark.verl

KINDS = ["python", "plain"]
SCRIPTS: dict[str, list[str | Exception]] = {
    "python": [call("python", code="print(6 * 7)"), "#### 7<|im_end|>"],
    "plain": ["#### 7<|im_end|>"],
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kill(server: ServerProcess) -> None:
    server.process.kill()
    server.process.wait(timeout=30)


async def roll(worker: Any) -> dict[str, dict[str, Any]]:
    output = await worker.generate_sequences(batch(KINDS, "rollbox_agent"))
    rows = zip(KINDS, output.non_tensor_batch[RECORD], output.batch["response_mask"], strict=True)
    return {kind: {**record, "trained": int(mask.sum())} for kind, record, mask in rows}


async def test_only_what_needed_the_sandbox_is_masked_and_a_sandbox_that_is_back_is_used(
    random_model_dir: Path, tmp_path: Path
) -> None:
    port = free_port()
    tools = yaml.safe_load((SHIPPED / "python.yaml").read_text())
    tools["tools"][0]["config"]["sandbox_url"] = f"http://127.0.0.1:{port}"
    file = tmp_path / "tools.yaml"
    file.write_text(yaml.safe_dump(tools))
    config = compose_config(random_model_dir, file, "reward.reward_manager.name=rollbox", "+rollbox.call_timeout_s=3")
    worker, client = make_worker(config, SCRIPTS)

    down = await roll(worker)
    with serving("--slots", "2", "--port", str(port)) as server:
        client.turns.clear()
        up = await roll(worker)
        kill(server)
        lost = await roll(worker)
    with serving("--slots", "2", "--port", str(port)):
        back = await roll(worker)
    await close_tools(worker)

    for away in (down, lost):
        assert away["python"]["infra_failed"]
        assert away["python"]["trained"] == 0
        assert away["python"]["calls"][0]["error_kind"] in ("infra", "overloaded")
        assert str(port) in away["python"]["error"] or "no answer within" in away["python"]["error"]
        assert not away["plain"]["infra_failed"]
        assert away["plain"]["trained"] > 0
    for there in (up, back):
        assert not there["python"]["infra_failed"]
        assert there["python"]["calls"][0]["error_kind"] is None
        assert there["python"]["trained"] > 0


async def test_a_judge_that_is_away_masks_what_it_was_to_score(random_model_dir: Path, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "rewards.yaml").write_text(
        f"sandbox_url: http://127.0.0.1:{port}\nparts: {{correct: {{kind: outcome}}}}\n"
    )
    given = (f"+rollbox.rewards.file={tmp_path}/rewards.yaml", "trainer.use_v1=True")
    scripts: dict[str, list[str | Exception]] = {
        "right": ["```python\nprint(2 * int(input()))\n```<|im_end|>"],
        "wrong": ["```python\nprint(int(input()))\n```<|im_end|>"],
        "none": ["I do not know.<|im_end|>"],
    }
    config = compose_config(random_model_dir, SHIPPED / "calculator.yaml", "reward.reward_manager.name=rollbox", *given)
    worker, client = make_worker(config, scripts)
    truth = {"style": "rule", "ground_truth": json.dumps({"inputs": ["4"], "outputs": ["8"]})}

    async def judged() -> dict[str, float | None]:
        client.turns.clear()
        rows = batch(list(scripts), "rollbox_agent", data_source=["taco"] * 3, reward_model=[truth] * 3)
        records = (await worker.generate_sequences(rows)).non_tensor_batch[RECORD]
        found = zip(scripts, records, strict=True)
        return {kind: None if record["infra_failed"] else record["rewards"]["total"] for kind, record in found}

    right = {"right": 1.0, "wrong": 0.0, "none": 0.0}
    with serving("--slots", "2", "--port", str(port)) as server:
        assert await judged() == right
        kill(server)
        assert await judged() == {"right": None, "wrong": None, "none": 0.0}  # what holds no program needs no judge
    with serving("--slots", "2", "--port", str(port)):
        assert await judged() == right
    await close_tools(worker)
