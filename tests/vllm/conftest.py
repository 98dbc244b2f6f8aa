"""Real vLLM on the CPU: in this process's program, and as a server in processes of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
import pytest_asyncio

# Before torch is imported, here or in a process that starts later: it calls what lies there.
sys.path.append(str(Path(__file__).parent / "autoload"))
# Before vLLM is imported, here or in a process that starts later.
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [sys.path[-1], os.environ.get("PYTHONPATH")])),
    "TORCHDYNAMO_DISABLE": "1",  # otherwise the first logprobs are computed after 38 s of compiling C++
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process beside this one rather than two
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}

from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.vllm import VllmEngine

START_S = 240.0
# Blocks of 32 tokens, the smallest on a CPU, so that a short prefix fills some.
ENGINE_ARGS = {"dtype": "float32", "enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 1 << 26}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            item.add_marker(pytest.mark.timeout(START_S * 2))


@pytest.fixture(scope="session")
def model_dir(random_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a `generation_config.json` of its own opinions, such as published models have."""
    directory = tmp_path_factory.mktemp("opinionated") / "tiny"
    shutil.copytree(random_model_dir, directory)
    path = directory / "generation_config.json"
    opinions = {"do_sample": True, "top_k": 1, "repetition_penalty": 5.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | opinions))
    return directory


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_engine(model_dir: Path) -> AsyncIterator[VllmEngine]:
    async with VllmEngine(model_dir, engine_args=ENGINE_ARGS) as engine:
        yield engine


class VllmServer:
    """`vllm serve` as a child in a process group of its own; a context manager."""

    def __init__(self, model_dir: Path, log: Path, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        # Not the command `vllm`: it asks for metadata of a package `vllm`, and the CPU build is named otherwise.
        self._command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_dir)]
        self._command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(self.port)]
        self._command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
        self._command += ["--kv-cache-memory-bytes", str(1 << 26), "--disable-access-log-for-endpoints", "/health"]
        self._command += arguments
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """The whole group at once, as when a machine goes away."""
        if self._process is not None:
            with_children = self._process.pid
            if self._process.poll() is None:
                os.killpg(with_children, 9)
            self._process.wait()
            self._process = None

    async def ready(self) -> None:
        deadline = time.monotonic() + START_S
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < deadline:
                assert self._process is not None
                assert self._process.poll() is None, self.log.read_text()[-4000:]
                try:
                    async with http.get(f"{self.url}/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.25)
        raise AssertionError(f"no server within {START_S:g} s: {self.log.read_text()[-4000:]}")

    async def metric(self, name: str) -> float:
        """The value of one of vLLM's metrics, summed over its labels."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"vllm:{name}{{"))


@pytest.fixture(scope="session")
def both_servers(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmServer, VllmServer]]:
    """Started side by side: one to keep, and one to kill."""
    logs = tmp_path_factory.mktemp("vllm-logs")
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with (
        VllmServer(model_dir, logs / "kept.log", *tools) as kept,
        VllmServer(model_dir, logs / "doomed.log", *tools) as doomed,
    ):
        yield kept, doomed


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(both_servers: tuple[VllmServer, VllmServer]) -> VllmServer:
    await both_servers[0].ready()
    return both_servers[0]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def http_engine(server: VllmServer, model_dir: Path) -> AsyncIterator[CompletionsEngine]:
    async with CompletionsEngine(server.url, model_dir) as engine:
        yield engine


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def doomed_server(both_servers: tuple[VllmServer, VllmServer]) -> VllmServer:
    """For the one test that kills it."""
    await both_servers[1].ready()
    return both_servers[1]


@pytest.fixture(scope="session")
def reference(model_dir: Path) -> Any:
    """Logprobs of given ids by a plain forward pass of transformers, without a cache or a batch."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()

    def logprobs(ids: list[int]) -> list[float]:
        """[len(ids) - 1]: of each id but the first, given those before it."""
        with torch.inference_mode():
            table = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1], dim=-1)
        return table.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()

    return logprobs
