"""SGLang's wire format, against a stub of its recorded shape (SGLang 0.5.23): no SGLang server runs in these tests.

The ids and logprobs behind the stub are those of a real local model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.engines.sglang import SGLangEngine
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.schemas.generation import SamplingParams

INFO = {"model_path": "/models/tiny", "tokenizer_path": "/models/tiny", "is_generation": True}
META = {
    "id": "5f0c",
    "finish_reason": {"type": "stop", "matched": 2},
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "cached_tokens": 0,
    "output_token_logprobs": [[-0.5, 7, None], [-0.25, 2, None]],
    "e2e_latency": 0.1,
}


class SGLangShaped:
    """`/get_model_info`, `/v1/models` and `/generate` as SGLang answers them for `input_ids` and `return_logprob`."""

    def __init__(self, engine: HuggingFaceEngine) -> None:
        self.engine = engine
        self.info: Any = INFO
        self.requests: list[dict[str, Any]] = []
        self.answer: Any = None

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/get_model_info", self.model_info),
                web.get("/v1/models", self.models),
                web.post("/generate", self.generate),
            ]
        )
        return app

    async def model_info(self, request: web.Request) -> web.Response:
        return web.json_response(self.info)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny", "max_model_len": 512}]})

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        if self.answer is not None:
            return web.json_response(self.answer)
        params = body["sampling_params"]
        sampling = SamplingParams(
            max_tokens=params["max_new_tokens"], temperature=params["temperature"], seed=params["sampling_seed"]
        )
        output = await self.engine.generate("r", body["input_ids"], sampling)
        reason = {"type": output.finish_reason}
        entries = [[p, i, None] for p, i in zip(output.logprobs, output.token_ids, strict=True)]
        meta = META | {"finish_reason": reason, "output_token_logprobs": entries}
        # The server cuts a matched stop token off these.
        return web.json_response({"text": "…", "output_ids": output.token_ids[:-1], "meta_info": meta})


@pytest.fixture
async def server(random_model_dir: Path) -> AsyncIterator[tuple[SGLangShaped, str]]:
    async with HuggingFaceEngine(random_model_dir) as local:
        shaped = SGLangShaped(local)
        async with TestServer(shaped.app()) as running:
            yield shaped, str(running.make_url(""))


async def test_ids_go_out_and_come_back_as_sampled(server: tuple[SGLangShaped, str], random_model_dir: Path) -> None:
    shaped, url = server
    sampling = SamplingParams(max_tokens=8, seed=3, stop_token_ids=[9])
    async with SGLangEngine(url, random_model_dir) as engine:
        assert engine.max_context == 512
        output = await engine.generate("t", [5, 6, 7], sampling)
    assert output == await shaped.engine.generate("t", [5, 6, 7], sampling)
    [sent] = shaped.requests
    params = sent.pop("sampling_params")
    assert sent == {"input_ids": [5, 6, 7], "return_logprob": True, "stream": False}
    assert params.items() >= {"max_new_tokens": 8, "top_k": -1, "repetition_penalty": 1.0, "sampling_seed": 3}.items()
    assert params["stop_token_ids"] == [9, shaped.engine.tokenizer.eos_token_id]


async def test_the_end_token_is_kept(server: tuple[SGLangShaped, str], random_model_dir: Path) -> None:
    shaped, url = server
    shaped.answer = {"text": "", "output_ids": [7], "meta_info": META}
    async with SGLangEngine(url, random_model_dir) as engine:
        output = await engine.generate("t", [5], SamplingParams())
    assert (output.token_ids, output.logprobs, output.finish_reason) == ([7, 2], [-0.5, -0.25], "stop")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "not one of SGLang's"),
        ({"text": "hi"}, "not one of SGLang's"),
        ({"meta_info": {"finish_reason": {"type": "stop"}}}, "output_token_logprobs"),
        (
            {"meta_info": META | {"finish_reason": {"type": "abort", "message": "out of memory"}}},
            "aborted.*out of memory",
        ),
        ({"meta_info": META | {"output_token_logprobs": [["x", 7, None]]}}, "not usable"),
    ],
)
async def test_whatever_the_server_says_is_an_engine_error(
    server: tuple[SGLangShaped, str], random_model_dir: Path, answer: Any, said: str
) -> None:
    shaped, url = server
    shaped.answer = answer
    async with SGLangEngine(url, random_model_dir) as engine:
        with pytest.raises(EngineError, match=said):
            await engine.generate("t", [5], SamplingParams(max_tokens=2))


async def test_logprobs_that_would_not_be_the_models_are_refused(
    server: tuple[SGLangShaped, str], random_model_dir: Path
) -> None:
    shaped, url = server
    warm = SamplingParams(temperature=0.7, max_tokens=2, seed=1)
    async with SGLangEngine(url, random_model_dir) as engine:
        with pytest.raises(ConfigError, match="SGLANG_RETURN_ORIGINAL_LOGPROB=1"):
            await engine.generate("t", [5], warm)
    async with SGLangEngine(url, random_model_dir, original_logprobs=True) as engine:
        assert await engine.generate("t", [5], warm) == await shaped.engine.generate("t", [5], warm)


@pytest.mark.parametrize(
    ("info", "said"), [({"object": "list"}, "not an SGLang server"), (INFO | {"is_generation": False}, "not generate")]
)
async def test_another_kind_of_server_is_refused(
    server: tuple[SGLangShaped, str], random_model_dir: Path, info: Any, said: str
) -> None:
    shaped, url = server
    shaped.info = info
    with pytest.raises(ConfigError, match=said):
        async with SGLangEngine(url, random_model_dir):
            pass
