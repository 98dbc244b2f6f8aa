"""Passwords and keys are in no message and in no shown value; the rest of a text stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from rollbox.retrieval.dense.embedding_server import KEY_VARIABLE, EmbeddingServer
from rollbox.retrieval.services import elasticsearch
from rollbox.retrieval.services.remote import RemoteRetriever
from rollbox.rewards.service import ScoringService
from rollbox.rollout.engines.http_client import EngineClient
from rollbox.sandbox.client import Sandbox
from rollbox.schemas.errors import ConfigError, InfraError, OverloadedError, SandboxError, ToolError
from rollbox.schemas.redacted import is_secret, redacted
from rollbox.schemas.reward_config import Service
from rollbox.schemas.validation import validated
from rollbox.tools.mcp.server import McpServer
from rollbox.tools.search import SearchConfig

PLAIN = st.text(st.characters(exclude_characters="@/?#'\"`", exclude_categories=("Z", "C")), min_size=1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:hush@host:80/x?q=1 failed", "http://host:80/x?q=1 failed"),
        ("['https://hush@a', 'http://u:hu@sh@b/']", "['https://a', 'http://b/']"),
        ("http://host/v1?api_key=hush&n=1", "http://host/v1?api_key=…&n=1"),
        ("http://host/v1?n=1&access_token=hush", "http://host/v1?n=1&access_token=…"),
        ("http://host/@user and a@b", "http://host/@user and a@b"),
        ("http://[::1]:8/x", "http://[::1]:8/x"),
    ],
)
def test_addresses(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


@given(PLAIN, PLAIN, st.sampled_from(["{}", "model: {!r} is none", "a {} b", "[{!r}, {!r}]"]))
def test_no_password_gets_through(user: str, password: str, around: str) -> None:
    url = f"http://{user}:{password}@host/v1"
    assert redacted(around.format(url, url)) == around.format("http://host/v1", "http://host/v1")


@pytest.mark.parametrize(
    "name",
    ["api_key", "X-API-KEY", "apikey", "sandbox_token", "token", "Authorization", "Proxy-Authorization", "headers"],
)
def test_secret_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "token_file", "token_variable", "keys", "author", 3, ""])
def test_other_names(name: object) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize("kind", [ConfigError, InfraError, OverloadedError, SandboxError])
def test_messages_have_no_passwords(kind: Callable[[str], Exception]) -> None:
    assert str(kind("http://u:hush@host answered 500")) == "http://host answered 500"


def test_what_the_model_reads_is_left_alone() -> None:
    assert str(ToolError("http://u:p@host")) == "http://u:p@host"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    api_key: str | None = None
    headers: dict[str, str] = {}
    parts: list[Inner] = []


@pytest.mark.parametrize(
    "data",
    [
        {"api_key": ["hush"]},
        {"headers": {"Authorization": ["Bearer hush"]}},
        {"parts": {"url": "http://u:hush@host"}},
        {"parts": [{"url": 1, "token": "hush"}]},
        {"parts": "http://u:hush@host"},
        {"parts": f"{'x' * 60} http://u:hush@host"},
        [{"api_key": "hush"}],
        [[[[[[[[[[{"deep": "hush"}]]]]]]]]]],
    ],
)
def test_wrong_settings_are_named_without_their_secrets(data: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        validated(Settings, data, "file")
    assert "hush" not in str(raised.value)
    assert "file: " in str(raised.value)


def test_settings_that_do_not_fit_together_are_shown_without_their_secrets() -> None:
    with pytest.raises(ConfigError, match="belong together") as raised:
        validated(SearchConfig, {"api_key": "hush"}, "search")
    assert "hush" not in str(raised.value)


def test_a_server_of_tools_is_named_without_its_secrets() -> None:
    args = ("-m", "server", "--api-key", "hush", "--token=hush", "--port", "1")
    assert str(McpServer(command="python3", args=args)) == "python3 -m server --api-key … --token=… --port 1"
    assert "hush" not in repr(McpServer(command="python3", env={"KEY": "hush"}, headers={"Authorization": "hush"}))
    assert "hush" not in str(InfraError(f"{McpServer(url='http://u:hush@host/mcp')}"))


@pytest.mark.parametrize(
    "client",
    [
        lambda url: Sandbox.connect(url, token="t"),
        lambda url: EngineClient(url, api_key="t"),
        lambda url: ScoringService(Service(url=url, token_variable="KEY")),
        lambda url: EmbeddingServer(url, "m"),
        lambda url: elasticsearch.ElasticsearchRetriever(f"{url}/index", 1),
        lambda url: RemoteRetriever(url, 1, headers={"Authorization": "Bearer t"}),
    ],
)
def test_a_password_and_a_token_are_one_too_many(
    client: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("KEY", KEY_VARIABLE, elasticsearch.KEY_VARIABLE):
        monkeypatch.setenv(variable, "t")
    client("http://host:80")
    with pytest.raises(ConfigError, match=r"http://host:80.*: its address holds a user and a password"):
        client("http://user:hush@host:80")
