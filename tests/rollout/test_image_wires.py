"""Images on their way to servers: what is sent for them, and what is refused. The servers are stubs of their shape."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from PIL import Image

from rollbox.rollout.engines.completions import CompletionsEngine
from rollbox.rollout.engines.openai_chat import OpenAIChatEngine
from rollbox.rollout.engines.sglang import SGLangEngine
from rollbox.rollout.loop import RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.rollout.vision.image_tokens import ImageTokens
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.schemas.generation import ImageInput, SamplingParams
from rollbox.schemas.trajectory import Sample

from .image_tool import ImageTool
from .vision_models import picture, processor_of

DRAW = '<tool_call>\n{"name": "draw", "arguments": {}}\n</tool_call>'
SEEN, OTHER = picture(100, 60), picture(64, 64, 1)


class Stub:
    """Answers by path what it is told to, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/v1/models": {"data": [{"id": "m", "max_model_len": 512}]}}
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.sent.append((request.path, await request.json()))
        if request.path not in self.answers:
            return web.json_response({}, status=404)
        answer = self.answers[request.path]
        return web.json_response(answer.pop(0) if isinstance(answer, list) else answer)


@pytest.fixture
async def stub() -> AsyncIterator[tuple[Stub, str]]:
    made = Stub()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", made.handle)
    async with TestServer(app) as running:
        yield made, str(running.make_url("")).rstrip("/")


def same(uri: str, image: Any) -> bool:
    head, data = uri.split(",", 1)
    assert head == "data:image/png;base64"
    return bool(Image.open(io.BytesIO(base64.b64decode(data))).tobytes() == image.tobytes())


@pytest.fixture
def prompt(vision_model_dir: Path) -> tuple[list[int], list[ImageInput], int]:
    """Ids, images, and the placeholder's id."""
    tokens = ImageTokens(processor_of(vision_model_dir))
    first, second = tokens.count(SEEN), tokens.count(OTHER)
    # Next to each other, so that a run of placeholders does not say where one image ends.
    ids = [5, 6] + [tokens.image_id] * (first + second) + [7]
    images = [ImageInput(SEEN, 2, 2 + first), ImageInput(OTHER, 2 + first, 2 + first + second)]
    return ids, images, tokens.image_id


async def test_sglang_is_sent_expanded_ids_and_files(
    stub: tuple[Stub, str], vision_model_dir: Path, prompt: tuple[list[int], list[ImageInput], int]
) -> None:
    server, url = stub
    ids, images, _ = prompt
    server.answers["/get_model_info"] = {"model_path": "m", "is_generation": True}
    meta = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.5, 7, None]], "prompt_tokens": len(ids)}
    server.answers["/generate"] = [{"meta_info": meta}, {"meta_info": meta | {"prompt_tokens": len(ids) + 1}}]
    async with SGLangEngine(url, vision_model_dir) as engine:
        output = await engine.generate("t", ids, SamplingParams(max_tokens=4), images)
        with pytest.raises(EngineError, match=f"made {len(ids) + 1} tokens"):
            await engine.generate("t", ids, SamplingParams(max_tokens=4), images)
    assert output.token_ids == [7]
    _, sent = server.sent[0]
    assert sent["input_ids"] == ids
    assert [same(*pair) for pair in zip(sent["image_data"], (SEEN, OTHER), strict=True)] == [True, True]


async def test_vllm_is_sent_one_placeholder_for_each_image(
    stub: tuple[Stub, str], vision_model_dir: Path, prompt: tuple[list[int], list[ImageInput], int]
) -> None:
    server, url = stub
    ids, images, image_id = prompt
    content = [{"token_id": 7, "logprob": -0.5, "top_logprobs": []}]
    choice = {"index": 0, "token_ids": [7], "logprobs": {"content": content}, "finish_reason": "stop"}
    server.answers["/openapi.json"] = {"paths": {"/inference/v1/generate": {}}}
    server.answers["/inference/v1/generate"] = [
        {"choices": [choice], "prompt_token_ids": ids},
        {"choices": [choice], "prompt_token_ids": ids[:-1]},
        {"choices": [choice]},
    ]
    async with CompletionsEngine(url, vision_model_dir) as engine:
        output = await engine.generate("t", ids, SamplingParams(max_tokens=4), images)
        with pytest.raises(EngineError, match=f"made {len(ids) - 1} tokens of a prompt with images"):
            await engine.generate("t", ids, SamplingParams(max_tokens=4), images)
        with pytest.raises(EngineError, match="prompt_token_ids"):
            await engine.generate("t", ids, SamplingParams(max_tokens=4), images)
    assert (output.token_ids, output.logprobs, output.finish_reason) == ([7], [-0.5], "stop")
    path, sent = server.sent[0]
    assert path == "/inference/v1/generate"
    assert sent["token_ids"] == [5, 6, image_id, image_id, 7]
    assert [part["type"] for part in sent["content_parts"]] == ["image_url"] * 2
    assert same(sent["content_parts"][1]["url"], OTHER)


async def test_a_vllm_server_that_takes_none_is_said_at_start(
    stub: tuple[Stub, str], vision_model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, url = stub
    async with CompletionsEngine(url, vision_model_dir) as engine:
        assert engine.processor is None
        assert "--enable-scale-out" in caplog.text
        loop = RolloutLoop(engine, {"draw": ImageTool()}, get_parser("hermes"))
        sample = Sample(
            sample_id="s", data_source="x", messages=[{"role": "user", "content": [{"type": "image"}]}], images=[SEEN]
        )
        with pytest.raises(ConfigError, match="shown text only"):
            loop.check_sample(sample)


def chat_turn(content: str | None, *names: str) -> dict[str, Any]:
    functions = [{"name": name, "arguments": "{}"} for name in names]
    calls = [{"id": f"x{i}", "type": "function", "function": function} for i, function in enumerate(functions)]
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    return {"choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}]}


async def test_a_chat_server_is_shown_tools_images_behind_their_answers(stub: tuple[Stub, str]) -> None:
    server, url = stub
    turns = [chat_turn(None, "draw", "draw"), chat_turn(None, "draw"), chat_turn("7")]
    server.answers["/v1/chat/completions"] = turns
    content = [{"type": "image"}, {"type": "text", "text": "Draw."}]
    sample = Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": content}], images=[OTHER])
    async with OpenAIChatEngine(url, takes_images=True, retry_s=0) as engine:
        loop = RolloutLoop(engine, {"draw": ImageTool(SEEN)}, get_parser("hermes"))
        trajectory = await loop.run(sample)
    messages = server.sent[2][1]["messages"]
    roles = ["user", "assistant", "tool", "tool", "user", "assistant", "tool", "user"]
    assert [message["role"] for message in messages] == roles
    assert same(messages[0]["content"][0]["image_url"]["url"], OTHER)
    assert [part["type"] for part in messages[4]["content"]] == ["text", "image_url", "image_url"]
    assert same(messages[7]["content"][1]["image_url"]["url"], SEEN)
    assert all(isinstance(message["content"], str) for message in messages if message["role"] == "tool")
    assert [image.start for image in trajectory.images] == [None] * 4
    assert trajectory.messages[2]["content"][0]["image"] == trajectory.images[1].file


async def test_a_chat_server_of_a_model_that_sees_none_is_told(stub: tuple[Stub, str]) -> None:
    server, url = stub
    server.answers["/v1/chat/completions"] = [chat_turn(None, "draw"), chat_turn("7")]
    sample = Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": "Draw."}])
    async with OpenAIChatEngine(url, retry_s=0) as engine:
        loop = RolloutLoop(engine, {"draw": ImageTool(SEEN)}, get_parser("hermes"))
        await loop.run(sample)
    assert "this model reads text only" in server.sent[1][1]["messages"][-1]["content"]


async def test_a_chat_server_counts_by_a_local_processor(stub: tuple[Stub, str], vision_model_dir: Path) -> None:
    server, url = stub
    server.answers["/v1/chat/completions"] = [chat_turn(None, "draw"), chat_turn("7")]
    sample = Sample(sample_id="s", data_source="x", messages=[{"role": "user", "content": "Draw."}])
    async with OpenAIChatEngine(url, vision_model_dir, retry_s=0) as engine:
        loop = RolloutLoop(engine, {"draw": ImageTool(SEEN)}, get_parser("hermes"))
        trajectory = await loop.run(sample)
        tokens = ImageTokens(engine.processor)
    assert trajectory.response_ids.count(tokens.image_id) == tokens.count(SEEN)
    assert (trajectory.token_exact, trajectory.images[0].start) == (False, None)
