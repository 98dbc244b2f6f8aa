"""The completions engine over real HTTP, against a server that answers in vLLM's shape from a real local model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.schemas.generation import SamplingParams


class VllmShaped:
    """`/v1/models` and `/v1/completions` as vLLM answers them for token-id prompts with `return_token_ids`."""

    def __init__(self, engine: HuggingFaceEngine) -> None:
        self.engine = engine
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[], web.Response] | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.get("/v1/models", self.models), web.post("/v1/completions", self.completions)])
        return app

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"data": [{"id": "tiny", "root": "/models/tiny", "max_model_len": self.engine.max_context}]}
        )

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body | {"authorization": request.headers.get("Authorization")})
        if self.answer is not None:
            return self.answer()
        sampling = SamplingParams(max_tokens=body["max_tokens"], temperature=body["temperature"], seed=body["seed"])
        output = await self.engine.generate("r", body["prompt"], sampling)
        choice = {
            "index": 0,
            "text": "",
            "token_ids": output.token_ids,
            "logprobs": {"token_logprobs": output.logprobs},
            "finish_reason": output.finish_reason,
        }
        return web.json_response({"id": "c", "model": "tiny", "choices": [choice]})


def completion(token_ids: list[int], logprobs: str) -> web.Response:
    """An answer whose logprobs are numbers that JSON does not have, as Python's json writes them."""
    choice = f'{{"token_ids": {token_ids}, "logprobs": {{"token_logprobs": [{logprobs}]}}, "finish_reason": "stop"}}'
    return web.Response(text=f'{{"choices": [{choice}]}}', content_type="application/json")


@pytest.fixture
async def server(random_model_dir: Path) -> AsyncIterator[tuple[VllmShaped, str]]:
    async with HuggingFaceEngine(random_model_dir) as local:
        vllm = VllmShaped(local)
        async with TestServer(vllm.app()) as running:
            yield vllm, str(running.make_url(""))


async def test_ids_go_out_and_come_back_as_sampled(server: tuple[VllmShaped, str], random_model_dir: Path) -> None:
    vllm, url = server
    sampling = SamplingParams(max_tokens=8, temperature=0.7, seed=3)
    async with CompletionsEngine(url, random_model_dir, api_key="secret") as engine:
        output = await engine.generate("t", [5, 6, 7], sampling)
        assert (engine.max_context, engine.model_id) == (512, "tiny at /models/tiny")
    assert output == await vllm.engine.generate("t", [5, 6, 7], sampling)
    [sent] = vllm.requests
    assert (sent["prompt"], sent["model"], sent["return_token_ids"]) == ([5, 6, 7], "tiny", True)
    assert sent["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: web.Response(status=500, text="<h1>oops</h1>"), "answered 500: <h1>oops"),
        (lambda: web.Response(status=400, text="too long"), "answered 400: too long"),
        (lambda: web.Response(text=""), "completion has no"),
        (lambda: web.Response(text="<h1>not json</h1>"), "JSONDecodeError"),
        (lambda: web.Response(text="[" * 100_000), "RecursionError"),
        (lambda: completion([5, 6], "NaN, -0.1"), "a logprob is not a finite number"),
        (lambda: completion([5, 6], "-Infinity, Infinity"), "a logprob is not a finite number"),
        (lambda: completion([5, -6], "-0.1, -0.1"), "token ids must be from 0"),
        (lambda: completion([5, 1 << 40], "-0.1, -0.1"), "token ids must be from 0"),
        (lambda: web.json_response({"choices": []}), "completion has no"),
        (lambda: web.json_response({"choices": [{"finish_reason": "stop", "text": "hi"}]}), "return_token_ids"),
        (
            lambda: web.json_response(
                {"choices": [{"finish_reason": "stop", "token_ids": [1, 2], "logprobs": {"token_logprobs": [0.0]}}]}
            ),
            "2 token ids but 1 logprobs",
        ),
    ],
)
async def test_whatever_the_server_says_is_an_engine_error(
    server: tuple[VllmShaped, str], random_model_dir: Path, answer: Any, said: str
) -> None:
    vllm, url = server
    async with CompletionsEngine(url, random_model_dir, retry_s=0) as engine:
        vllm.answer = answer
        with pytest.raises(EngineError, match=said):
            await engine.generate("t", [5], SamplingParams(max_tokens=2))


async def test_a_server_that_hangs_is_given_up(random_model_dir: Path) -> None:
    given_up = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        given_up.set()

    listener = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        with pytest.raises(ConfigError, match="no usable answer"):
            async with CompletionsEngine(f"http://127.0.0.1:{port}", random_model_dir, timeout_s=0.2):
                pass
        await given_up.wait()


async def test_an_unserved_model_is_named(server: tuple[VllmShaped, str], random_model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="does not serve 'big'; it serves: tiny"):
        async with CompletionsEngine(server[1], random_model_dir, model="big"):
            pass


@pytest.mark.parametrize("url", ["model_url", "ftp://x", "http://", "http://h:x", "http://h:1,", ""])
def test_a_placeholder_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        CompletionsEngine(url, tmp_path)


async def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer: cannot load"):
        async with CompletionsEngine("http://127.0.0.1:9", tmp_path):
            pass
