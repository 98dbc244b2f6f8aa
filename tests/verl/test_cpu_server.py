"""The CPU server as verl calls it, in this process, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import rollbox.training.plugin  # noqa: F401 - as verl loads it
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.training.cpu.server import CpuServer

from ..sandbox.server_process import until

pytestmark = pytest.mark.verl

CONFIG = SimpleNamespace(prompt_length=32, response_length=64, max_num_seqs=8)
PROMPT = list(range(5, 15))


@pytest.fixture
async def server(random_model_dir: Path) -> AsyncIterator[CpuServer]:
    server = CpuServer(CONFIG, str(random_model_dir), seed=0, threads=1)
    await server.launch()
    yield server
    await server._engine.__aexit__(None, None, None)


def weights(model_dir: Path) -> dict[str, Any]:
    return dict(AutoModelForCausalLM.from_pretrained(model_dir).state_dict())


async def test_it_takes_verls_sampling_parameters(server: CpuServer) -> None:
    given = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    output = await server.generate(PROMPT, {**given, "max_tokens": 5}, "r", image_data=None, video_data=None)
    assert len(output.token_ids) <= 5
    assert len(output.log_probs) == len(output.token_ids)
    assert (await server.generate(PROMPT, {**given, "logprobs": False, "max_new_tokens": 2}, "r")).log_probs is None
    # Prompt and response together have room for 96 tokens.
    assert len((await server.generate(list(range(5, 95)), given, "r")).token_ids) <= 6


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"repetition_penalty": 1.1}, "repetition_penalty is not supported"),
        ({"stop": ["x"]}, "rollbox_cpu: sampling parameters: stop"),
        ({"temperature": -1}, "temperature"),
    ],
)
async def test_what_it_cannot_do_is_named(server: CpuServer, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await server.generate(PROMPT, parameters, "r")
    with pytest.raises(ConfigError, match="takes text only"):
        await server.generate(PROMPT, {}, "r", image_data=[object()])


async def test_weights_come_between_generations_and_their_version_with_each(
    server: CpuServer, random_model_dir: Path
) -> None:
    before = asyncio.create_task(server.generate(PROMPT, {"max_tokens": 20}, "r"))
    await until(lambda: bool(server._generating))
    await server.begin_update()
    assert before.done()
    held = asyncio.create_task(server.generate(PROMPT, {"max_tokens": 2}, "r"))
    new = {name: tensor * 0.5 for name, tensor in weights(random_model_dir).items()}
    names = list(new)
    await server.load_weights({name: new[name] for name in names[:3]})
    await server.load_weights({name: new[name] for name in names[3:]})
    assert not held.done()
    await server.finish_update(7)
    assert (await before).extra_fields["global_steps"] is None
    assert (await held).extra_fields["global_steps"] == 7
    loaded = server._engine._model.state_dict()
    assert all(torch.equal(loaded[name], new[name]) for name in names)


async def test_an_update_that_is_not_whole_is_refused(server: CpuServer, random_model_dir: Path) -> None:
    new = weights(random_model_dir)
    left_out = new.pop("model.norm.weight")
    await server.begin_update()
    await server.load_weights(new)
    with pytest.raises(EngineError, match=r"1 parameters were not sent, 'model.norm.weight' first"):
        await server.finish_update(1)
    await server.load_weights({"model.norm.weight": left_out})
    await server.finish_update(1)


async def test_requests_can_be_given_up(server: CpuServer) -> None:
    running = [asyncio.create_task(server.generate(PROMPT, {"max_tokens": 64}, "r")) for _ in range(3)]
    await until(lambda: len(server._generating) == 3)
    assert (await server.abort_all_requests())["aborted_count"] == 3
    for output in await asyncio.gather(*running):
        assert output.stop_reason in ("aborted", "completed")
    again = await server.generate(PROMPT, {"max_tokens": 2}, "r")
    assert again.stop_reason == "completed"
