"""`rollbox_agent` while the sandbox is away: at the start, in the middle of a run, and back again."""

from __future__ import annotations

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
