"""Engines side by side on one model: seconds to start, generated tokens per second, and this process's CPU time.

    .venv-vllm/bin/python bench/engines.py [--model DIR] [--engines hf,vllm,completions] [--tokens 128]

Without --model: a Qwen2 of random weights, 2 layers of 64, as the tests use. `completions` starts a server of its own.
Every request has a prompt of 256 ids of its own, so that no cache helps.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
PROMPT_TOKENS = 256
VLLM_ARGS = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 1 << 28}


def random_model(directory: Path) -> Path:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rollbox.demo.tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@contextlib.contextmanager
def vllm_server(model: Path) -> Iterator[str]:
    """The address of a server that answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--disable-uvicorn-access-log"]
    command += ["--kv-cache-memory-bytes", str(VLLM_ARGS["kv_cache_memory_bytes"])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        while not _answers(f"{url}/health"):
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}")
            time.sleep(0.2)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def measure(engine: Any, tokens: int, requests: int, concurrency: int) -> tuple[float, float]:
    """Tokens per second, and CPU milliseconds of this process per request."""
    from rollbox.schemas.generation import SamplingParams

    sampling = SamplingParams(max_tokens=tokens)
    numbers = iter(range(requests))
    source = random.Random(requests)
    generated = 0

    async def client() -> None:
        nonlocal generated
        for number in numbers:
            prompt = [source.randrange(5, 600) for _ in range(PROMPT_TOKENS)]
            output = await engine.generate(str(number), prompt, sampling)
            generated += len(output.token_ids)

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    cpu_ms = (time.process_time() - cpu) / requests * 1e3
    return generated / (time.perf_counter() - started), cpu_ms


async def report(name: str, engine: Any, started: float, tokens: int) -> None:
    async with engine:
        up_s = time.perf_counter() - started
        await measure(engine, 8, 2, 2)
        alone, _ = await measure(engine, tokens, 4, 1)
        together, cpu_ms = await measure(engine, tokens, 128, 64)
    print(f"{name:12} {up_s:10.1f} {alone:14.0f} {together:14.0f} {cpu_ms:18.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--engines", default="hf,vllm,completions")
    parser.add_argument("--tokens", type=int, default=128)
    arguments = parser.parse_args()
    os.environ |= SETTINGS
    from rollbox.rollout.engines.completions import CompletionsEngine
    from rollbox.rollout.engines.huggingface import HuggingFaceEngine
    from rollbox.rollout.engines.vllm import VllmEngine

    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or random_model(Path(scratch))
        print(f"{'engine':12} {'start-up s':>10} {'tokens/s, 1':>14} {'tokens/s, 64':>14} {'own CPU ms/request':>18}")
        for name in arguments.engines.split(","):
            started = time.perf_counter()
            if name == "completions":
                with vllm_server(model) as url:
                    asyncio.run(report(name, CompletionsEngine(url, model), started, arguments.tokens))
                continue
            engine: Any = HuggingFaceEngine(model) if name == "hf" else VllmEngine(model, engine_args=VLLM_ARGS)
            asyncio.run(report(name, engine, started, arguments.tokens))


if __name__ == "__main__":
    main()
