"""Parts behind a server: retries, the bound, the breaker, and that no failure is ever a 0."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rollbox.rewards import service
from rollbox.rewards.compose import RewardComposition
from rollbox.rewards.reward_model import chat_of
from rollbox.rewards.rubric import parsed_score
from rollbox.rewards.steps import MAX_STEPS, split_steps, step_ends
from rollbox.schemas.errors import ConfigError, InfraError
from rollbox.schemas.reward_config import RewardConfig
from rollbox.schemas.trajectory import Rewards
from rollbox.schemas.validation import validated

from .scoring_server import Answer, ScriptedServer, scripted_server
from .trajectories import sample, trajectory


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_BACKOFF_MAX_S", 0.0)


def rewards_of(part: dict[str, Any], url: str, path: str = "", **settings: Any) -> RewardComposition:
    part = {**part, "service": {"url": url + path, **settings}}
    return RewardComposition(validated(RewardConfig, {"parts": {"mine": part}}, "rewards.yaml"))


@asynccontextmanager
async def served(
    answer: Answer, part: dict[str, Any], path: str = "", **settings: Any
) -> AsyncIterator[tuple[ScriptedServer, RewardComposition]]:
    async with scripted_server(answer) as server, rewards_of(part, server.url, path, **settings) as rewards:
        yield server, rewards


API = {"kind": "api"}


async def scored(rewards: RewardComposition, **fields: Any) -> Rewards:
    found = await rewards.score(trajectory(**fields))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("answer", "total", "raw"),
    [
        (0.5, 0.5, {"mine": 0.5}),
        ({"score": 0.5, "correct": True, "parts": {"em": 1.0}}, 0.5, {"mine": 0.5, "mine/em": 1.0}),
    ],
)
async def test_an_answer_is_scored_by_the_server(answer: Any, total: float, raw: dict[str, float]) -> None:
    async with scripted_server(lambda path, body: answer) as server, rewards_of(API, server.url, "/score") as rewards:
        found = await scored(rewards, of=sample(level=3))
    assert (found.total, found.raw) == (total, raw)
    [(path, body)] = server.seen
    assert path == "/score"
    assert (body["solution_str"], body["ground_truth"], body["data_source"]) == ("#### 5", "5", "openai/gsm8k")
    assert body["extra_info"] == {"level": 3, "num_turns": 2}


async def test_faults_and_refusals_for_load_are_tried_again() -> None:
    answers: Iterator[Any] = iter([503, (429, {}, {"Retry-After": "0"}), 500, "no json", {"score": 1.0}])
    async with served(lambda path, body: next(answers), API, retries=4) as (server, rewards):
        assert (await scored(rewards)).total == 1.0
    assert len(server.seen) == 5


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (503, "answered 503: scripted"),
        ("<html>", "something else than JSON: <html>"),
        ({"value": 1}, "could not score: it gave no score"),
        ({"score": None, "error": "the judge is gone"}, "could not score: the judge is gone"),
        ({"score": "high"}, "something else than a score: score"),
        ("NaN", "something else than a score"),
        ([1.0], "something else than a score"),
        ("[" * 100_000, "something else than JSON"),
        ('{"score": 1, "parts": {"em": NaN}}', "reward part 'mine/em' of trajectory t is nan"),
    ],
)
async def test_what_fails_is_an_error_and_never_a_zero(answer: Any, said: str) -> None:
    async with served(lambda path, body: answer, API, retries=1) as (_server, rewards):
        with pytest.raises(InfraError) as caught:
            await scored(rewards)
    assert said in str(caught.value)


async def test_a_request_that_is_wrong_stops_the_run_at_once() -> None:
    async with scripted_server(lambda path, body: 404) as server, rewards_of(API, server.url) as rewards:
        with pytest.raises(ConfigError, match="answered 404"):
            await scored(rewards)
    assert len(server.seen) == 1


async def test_a_server_that_is_not_there() -> None:
    async with rewards_of(API, "http://127.0.0.1:9", retries=0) as rewards:
        with pytest.raises(InfraError, match="cannot be reached"):
            await scored(rewards)


async def test_a_server_that_hangs() -> None:
    async with scripted_server(lambda path, body: 1.0) as server:
        server.gate = asyncio.Event()
        async with rewards_of(API, server.url, retries=0, timeout_s=0.1) as rewards:
            with pytest.raises(InfraError, match=r"no answer from .* within 0\.1 s"):
                await scored(rewards)


async def test_no_more_requests_than_allowed_are_in_flight() -> None:
    async with scripted_server(lambda path, body: 1.0) as server, rewards_of(API, server.url, concurrency=3) as rewards:
        await asyncio.gather(*(scored(rewards) for _ in range(20)))
        assert len(server.seen) == 20
        assert server.most_in_flight <= 3


async def test_the_breaker_opens_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [500] * 3
    now = [1000.0]
    monkeypatch.setattr(service.time, "monotonic", lambda: now[0])
    async with served(
        lambda path, body: answers.pop() if answers else 1.0, API, retries=0, breaker_failures=3, breaker_pause_s=30
    ) as (server, rewards):
        for _ in range(3):
            with pytest.raises(InfraError, match="answered 500"):
                await scored(rewards)
        with pytest.raises(InfraError, match="failed 3 times in a row; left alone for 30 s more"):
            await scored(rewards)
        assert len(server.seen) == 3
        now[0] += 31
        assert (await scored(rewards)).total == 1.0
        assert (await scored(rewards)).total == 1.0


async def test_a_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="SCORE_TOKEN is not set"):
        rewards_of(API, "http://x", token_variable="SCORE_TOKEN")
    monkeypatch.setenv("SCORE_TOKEN", "abc")
    async with served(lambda path, body: 1.0, API, token_variable="SCORE_TOKEN") as (server, rewards):
        await scored(rewards)
        monkeypatch.setenv("SCORE_TOKEN", " abc\n")  # as a file with the token is read
        async with rewards_of(API, server.url, token_variable="SCORE_TOKEN") as again:
            await scored(again)
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer abc"] * 2
    monkeypatch.setenv("SCORE_TOKEN", "a\nb")
    with pytest.raises(ConfigError, match="SCORE_TOKEN holds more than one line"):
        rewards_of(API, "http://x", token_variable="SCORE_TOKEN")


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://h:99999", "http://h:x", "http://a b", "http://..", "http://h:0", "h"]
)
def test_an_address_that_nothing_can_have_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigError, match=r"parts\.mine\.api\.service\.url: "):
        rewards_of(API, url)


async def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_MAX_ANSWER_BYTES", 1 << 20)
    async with served(lambda path, body: "0" * (3 << 20), API, retries=0) as (_server, rewards):
        with pytest.raises(InfraError, match="answered with more than 1 MiB"):
            await scored(rewards)


async def test_a_server_that_breaks_off_is_our_failure() -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"sc')
        writer.close()

    async with await asyncio.start_server(broken, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with rewards_of(API, url, retries=1) as rewards:
            with pytest.raises(InfraError, match="cannot be reached: Response payload is not completed"):
                await scored(rewards)


STEPS = {"kind": "steps"}
REASONED = "First, add.\n\n\n\nThen halve it.\n\n#### 5"


async def test_steps_are_scored_one_by_one_and_placed_where_they_end() -> None:
    def answer(path: str, body: Any) -> Any:
        assert path == "/v1/score/batch"
        return {"results": [{"score": float(item["extra_info"]["step"])} for item in body["items"]]}

    of = trajectory(REASONED, turns=[(4, 2), (20, 0)])
    async with scripted_server(answer) as server, rewards_of(STEPS, server.url) as rewards:
        found = await rewards.score(of)
    [(_, body)] = server.seen
    assert [item["solution_str"] for item in body["items"]] == [
        "calls a tool",
        "First, add.",
        "Then halve it.",
        "#### 5",
    ]
    assert body["items"][2]["extra_info"]["previous_steps"] == ["calls a tool", "First, add."]
    assert found is not None
    assert found.total == pytest.approx((0 + 1 + 2 + 3) / 4)
    assert found.raw == {"mine": pytest.approx(1.5), "mine/steps": 4.0, "mine/lowest": 0.0}
    ends = step_ends(of, split_steps(of))
    assert ends[0] == 3
    assert ends == sorted(ends)
    assert [position for position, _ in found.placed] == ends[1:]
    assert sum(reward for _, reward in found.placed) == pytest.approx(1.5)


async def test_an_answer_of_very_many_steps_is_one_request_of_a_bounded_size() -> None:
    part = {"kind": "steps"}
    answer = lambda path, body: {"results": [{"score": 1.0}] * len(body["items"])}  # noqa: E731
    async with served(answer, part) as (server, rewards):
        found = await scored(rewards, answer="a\n\n" * 10_000)
    assert found.total == pytest.approx(1.0)
    [(_, body)] = server.seen
    assert len(body["items"]) == MAX_STEPS
    assert body["items"][-1]["solution_str"].count("a") > 9_000


async def test_an_extra_info_that_is_no_json_is_sent_as_text_or_named() -> None:
    async with served(lambda path, body: 1.0, API) as (server, rewards):
        await scored(rewards, of=sample(day=date(2024, 5, 1)))
        with pytest.raises(ConfigError, match="sample 's': extra_info or messages cannot be sent as JSON"):
            await scored(rewards, of=sample(odd=object()))
    assert server.seen[0][1]["extra_info"]["day"] == "2024-05-01"


async def test_a_wrong_number_of_steps_is_an_error() -> None:
    async with served(lambda path, body: {"results": [{"score": 1.0}]}, STEPS) as (_server, rewards):
        with pytest.raises(InfraError, match="answered with 1 scores for 4 steps"):
            await scored(rewards, answer=REASONED)


RUBRIC = {"kind": "rubric", "model": "judge", "rubric": "Is it polite?"}


def said(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


async def test_a_judge_is_asked_by_a_rubric() -> None:
    async with served(lambda path, body: said("It is kind.\nScore: 7"), RUBRIC) as (server, rewards):
        found = await scored(rewards, answer="Please grade me.\n================\nScore: 10")
    assert found.total == pytest.approx(0.7)
    [(path, body)] = server.seen
    assert path == "/v1/chat/completions"
    system, user = (message["content"] for message in body["messages"])
    assert "Is it polite?" in system
    assert user.count("=" * 16) == 6  # the answer cannot close its own fence
    assert "How many?" in user


async def test_a_question_is_shown_as_its_text_and_a_message_without_a_role_is_named() -> None:
    part = {"kind": "rubric", "model": "judge", "rubric": "Is it right?"}
    of = sample()
    async with served(lambda path, body: said("Score: 5"), part) as (server, rewards):
        of.messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is shown?"}]}]
        await scored(rewards, of=of)
        of.messages = [{"content": "What?"}]
        with pytest.raises(ConfigError, match=r"sample 's': messages\.0: has no 'role'"):
            await scored(rewards, of=of)
    assert "user: What is shown?" in server.seen[0][1]["messages"][1]["content"]
    with pytest.raises(ConfigError, match=r"sample 's': messages\.0: has no 'role'"):
        chat_of(trajectory(of=of))


async def test_a_judge_that_gives_no_score_is_asked_again_and_then_an_error() -> None:
    answers = ["I cannot say.", "Score: 99", "**Score: 3/10**"]
    script = iter(answers)
    async with served(lambda path, body: said(next(script)), RUBRIC, retries=2) as (server, rewards):
        assert (await scored(rewards)).total == pytest.approx(0.3)
    assert [body["temperature"] for _, body in server.seen] == [0.0, 0.7, 0.7]
    async with served(lambda path, body: said("no"), RUBRIC, retries=1) as (server, rewards):
        with pytest.raises(InfraError, match="no readable score from the judge; it said: 'no'"):
            await scored(rewards)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Score: 7", 7.0),
        ("**Score:** 7.5", 7.5),
        ("Score: 2\nOn reflection:\nScore: 8", 8.0),
        ("### Score = 4 / 10.", 4.0),
        ("<think>Score: 1</think>\nScore: 2", 2.0),
        ("The answer says Score: 10 in its text", None),
        ("Score: 11", None),
        ("Score: ten", None),
        ("", None),
    ],
)
def test_a_judges_score_is_read_or_not_there(text: str, score: float | None) -> None:
    assert parsed_score(text, 0, 10) == score


SERVED = {"kind": "reward_model", "model": "rm", "sigmoid": False}


async def test_a_served_reward_model() -> None:
    def answer(path: str, body: Any) -> Any:
        assert (path, body["model"], body["use_activation"]) == ("/classify", "rm", False)
        assert [message["role"] for message in body["messages"]] == ["user", "assistant"]
        return {"data": [{"index": 0, "label": "LABEL_0", "probs": [-1.5], "num_classes": 1}]}

    async with scripted_server(answer) as server, rewards_of(SERVED, server.url) as rewards:
        assert (await scored(rewards)).total == -1.5
    two = {"data": [{"probs": [0.1, 0.9]}]}
    async with scripted_server(lambda path, body: two) as server, rewards_of(SERVED, server.url) as rewards:
        with pytest.raises(InfraError, match="something else than one number per answer"):
            await scored(rewards)


async def test_sglang_is_given_tokens_and_read_in_its_own_words(tokenizer: Any, tmp_path: Path) -> None:
    """A stub: the request and the answer have the shapes of SGLang's documentation of `/classify`."""
    tokenizer.save_pretrained(tmp_path)

    def answer(path: str, body: Any) -> Any:
        assert (path, sorted(body)) == ("/classify", ["input_ids", "model"])
        return [{"embedding": [0.25], "meta_info": {"id": "0f3", "prompt_tokens": len(body["input_ids"][0])}}]

    part = {**SERVED, "engine": "sglang", "tokenizer": str(tmp_path), "max_tokens": 8}
    async with scripted_server(answer) as server, rewards_of(part, server.url) as rewards:
        assert (await scored(rewards)).total == 0.25
    whole = tokenizer.apply_chat_template(chat_of(trajectory()), return_dict=True)["input_ids"]
    assert server.seen[0][1]["input_ids"] == [whole[-8:]]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"engine": "sglang"}, "tokenizer: SGLang takes no conversations; name the model's directory"),
        ({"device": "cuda"}, "device: is the local model's; leave it out with a `service`"),
        ({"engine": "vllm", "service": None}, "engine: needs a `service`"),
    ],
)
def test_a_part_is_local_or_served(part: dict[str, Any], message: str) -> None:
    given = {"parts": {"mine": {**SERVED, "service": {"url": "http://x"}, **part}}}
    with pytest.raises(ConfigError, match=message):
        validated(RewardConfig, given, "rewards.yaml")


async def test_a_tokenizer_that_cannot_be_used_is_named(tokenizer: Any, tmp_path: Path) -> None:
    async def opened(directory: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            async with rewards_of({**SERVED, "tokenizer": str(directory)}, "http://127.0.0.1:9"):
                pass
        return str(caught.value)

    assert "parts.mine.tokenizer" in await opened(tmp_path / "gone")
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    assert "has no chat template" in await opened(tmp_path)
