"""Text mode through the real loop and real HTTP, with a chat server of scripted turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rollbox.rewards.trajectory import score_trajectory
from rollbox.rollout.engines.chat_messages import wire_messages
from rollbox.rollout.engines.openai_chat import OpenAIChatEngine
from rollbox.rollout.loop import RolloutLimits, RolloutLoop
from rollbox.rollout.parsers import get_parser
from rollbox.schemas.generation import SamplingParams
from rollbox.schemas.trajectory import Sample, StopReason, Trajectory
from rollbox.tools.calculator import CalculatorTool

SAMPLE = Sample(
    sample_id="s",
    data_source="openai/gsm8k",
    messages=[{"role": "user", "content": "What is 17 * 23?"}],
    ground_truth="391",
)
WRITTEN_CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "17 * 23"}}\n</tool_call>'


def turn(content: str | None, *calls: tuple[str, str], reason: str = "stop") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
        message["tool_calls"] = [{"id": f"x{i}", "type": "function", "function": f} for i, f in enumerate(functions)]
        reason = "tool_calls"
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": {}}


class ChatServer:
    """`/v1/models` and `/v1/chat/completions`; its turns are a script."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "some-model", "object": "model"}]})

    async def chat(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        return web.json_response(self.script.pop(0))


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    chat = ChatServer()
    app = web.Application()
    app.add_routes([web.get("/v1/models", chat.models), web.post("/v1/chat/completions", chat.chat)])
    async with TestServer(app) as running:
        chat.url = str(running.make_url("/v1"))
        yield chat


async def roll(server: ChatServer, *script: Any, tokenizer_dir: Path | None = None, **limits: Any) -> Trajectory:
    server.script = list(script)
    async with OpenAIChatEngine(server.url, tokenizer_dir, retry_s=0) as engine:
        tools = {"calculator": CalculatorTool()}
        loop = RolloutLoop(engine, tools, get_parser("hermes"), SamplingParams(seed=4), RolloutLimits(**limits))
        return await loop.run(SAMPLE)


async def test_calls_that_the_server_has_read_are_run(server: ChatServer) -> None:
    call = ("calculator", '{"expression": "17 * 23"}')
    trajectory = await roll(server, turn("I calculate.", call), turn("It is 391. #### 391"))
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [message["role"] for message in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.messages[1]["content"] == "I calculate."
    assert trajectory.messages[2]["content"] == "391"
    assert trajectory.assistant_texts[0] == f"I calculate.\n{WRITTEN_CALL}"
    rewards = await score_trajectory(trajectory)
    assert rewards is not None
    assert rewards.correct
    first, second = server.requests
    assert (first["model"], first["seed"], second["seed"]) == ("some-model", 4, 5)
    assert first["tools"][0]["function"]["name"] == "calculator"
    assert not {"top_k", "stop_token_ids", "logprobs"} & set(first)
    sent_call, sent_answer = second["messages"][1:]
    assert json.loads(sent_call["tool_calls"][0]["function"]["arguments"]) == {"expression": "17 * 23"}
    assert sent_answer["tool_call_id"] == sent_call["tool_calls"][0]["id"]


async def test_calls_that_the_server_left_in_the_text_are_read_here(server: ChatServer) -> None:
    trajectory = await roll(server, turn(WRITTEN_CALL), turn("#### 391"))
    assert [record.tool for record in trajectory.records] == ["calculator"]
    assert trajectory.stop_reason is StopReason.ANSWERED


async def test_unreadable_arguments_are_told(server: ChatServer) -> None:
    trajectory = await roll(server, turn(None, ("calculator", "{oops")), turn("#### 391"))
    assert trajectory.messages[2]["content"] == "The arguments of 'calculator' are not a JSON object. It was not run."
    assert trajectory.stop_reason is StopReason.ANSWERED
    # No call that it could answer was kept, so for the server it is the user's.
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user", "assistant", "user"]


async def test_half_a_surrogate_pair_does_not_end_the_run(server: ChatServer) -> None:
    """JSON can write one, and no record or tokenizer can hold it."""
    calls = [("calculator", '{"expression": "\\ud800"}'), ("cal\ud800", "{}"), ("calculator", '"\ud800"')]
    trajectory = await roll(server, turn("a\ud800b", *calls), turn("\udfff"))
    assert trajectory.messages[1]["content"] == "a\ufffdb"
    assert trajectory.messages[-1]["content"] == "\ufffd"
    assert [record.tool for record in trajectory.records] == ["calculator", "cal\ufffd", ""]
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory


async def test_a_turn_cut_by_the_limit_is_not_a_call(server: ChatServer) -> None:
    trajectory = await roll(server, turn(WRITTEN_CALL, reason="length"))
    assert (trajectory.stop_reason, trajectory.records) == (StopReason.TURN_TRUNCATED, [])


async def test_with_a_tokenizer_the_tokens_add_up_and_are_marked(server: ChatServer, random_model_dir: Path) -> None:
    call = ("calculator", '{"expression": "17 * 23"}')
    trajectory = await roll(server, turn(None, call), turn("#### 391"), tokenizer_dir=random_model_dir)
    assert not trajectory.token_exact
    assert [span.kind for span in trajectory.spans] == ["assistant", "context", "assistant"]
    assert trajectory.prompt_ids
    assert set(trajectory.response_logprobs) == {0.0}
    assert trajectory.records[0].token_span == (trajectory.spans[1].start, trajectory.spans[1].end)


async def test_with_a_tokenizer_the_response_limit_holds(server: ChatServer, random_model_dir: Path) -> None:
    trajectory = await roll(
        server, turn("word " * 60, reason="length"), tokenizer_dir=random_model_dir, max_response_tokens=20
    )
    assert server.requests[0]["max_tokens"] == 20
    assert trajectory.stop_reason is StopReason.CONTEXT_FULL


async def test_without_a_tokenizer_there_are_no_tokens(server: ChatServer) -> None:
    trajectory = await roll(server, turn(WRITTEN_CALL), turn("#### 391"))
    assert (trajectory.prompt_ids, trajectory.response_ids, trajectory.token_exact) == ([], [], False)
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "not a chat completion"),
        (turn("no", reason="content_filter"), "finish_reason='content_filter'"),
        ({"choices": [{"message": {"tool_calls": [{"id": "x"}]}, "finish_reason": "stop"}]}, "not a chat completion"),
    ],
)
async def test_whatever_the_server_says_masks_the_sample(server: ChatServer, answer: Any, said: str) -> None:
    trajectory = await roll(server, answer)
    assert (trajectory.stop_reason, trajectory.infra_failed) == (StopReason.INFRA, True)
    assert said in (trajectory.error or "")


def test_answers_go_to_their_calls_in_order() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"é": 1}}}
    two_calls = {"role": "assistant", "content": "", "tool_calls": [call, call]}
    answers = [{"role": "tool", "content": text} for text in ("one", "two", "unreadable")]
    wired = wire_messages(
        [{"role": "user", "content": "q"}, two_calls, *answers, {"role": "assistant", "content": "a"}]
    )
    ids = [wired_call["id"] for wired_call in wired[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [message.get("tool_call_id") for message in wired[2:5]] == [*ids, None]
    assert wired[4]["role"] == "user"
    assert wired[1]["tool_calls"][0]["function"]["arguments"] == '{"é": 1}'
    assert call["function"]["arguments"] == {"é": 1}
