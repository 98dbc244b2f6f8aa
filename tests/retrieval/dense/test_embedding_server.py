"""Embeddings over HTTP: batches, their order, and servers that answer with something else."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

from rollbox.retrieval.dense.embedder import EmbedderConfig, known_prefixes, open_embedder
from rollbox.retrieval.dense.embedding_server import EmbeddingServer
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.retrieval.services import http_service
from rollbox.schemas.errors import InfraError, OverloadedError

from ...odd_texts import ODD_TEXTS, strict
from ...rewards.scoring_server import scripted_server

pytestmark = pytest.mark.timeout(600)  # the first to need the model waits for ten CPU seconds of imports


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "_FIRST_PAUSE_S", 0.001)


def answer_for(body: Any) -> Any:
    """Vectors that say which text they are of, in another order than asked for."""
    data = [{"index": i, "embedding": [1.0, float(text), 0.0]} for i, text in enumerate(body["input"])]
    return {"data": data[::-1]}


async def test_batches_come_back_in_order() -> None:
    async with scripted_server(lambda path, body: answer_for(body)) as server:
        client = EmbeddingServer(f"{server.url}/v1/embeddings", "m", batch_size=3)
        vectors, retries = await client.embed([str(number) for number in range(20)], 20)
        await client.aclose()
    assert sorted(len(body["input"]) for _, body in server.seen) == [2, 3, 3, 3, 3, 3, 3]
    assert {path for path, _ in server.seen} == {"/v1/embeddings"}
    assert {body["model"] for _, body in server.seen} == {"m"}
    assert np.allclose(vectors[:, 1] / vectors[:, 0], range(20))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert (vectors.dtype, retries) == (np.float32, 0)


async def test_the_vectors_of_a_real_model_arrive(embedder: SentenceModel) -> None:
    texts = ["an organ", "a metal"]
    direct, _ = await embedder.embed(texts, 60)
    answer = {"data": [{"index": i, "embedding": row.tolist()} for i, row in enumerate(direct)]}
    async with scripted_server(lambda path, body: answer) as server:
        client = open_embedder(EmbedderConfig(model="m", url=f"{server.url}/v1/embeddings"))
        vectors, _ = await client.embed(texts, 20)
        await client.aclose()
    assert np.allclose(vectors, direct, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(ODD_TEXTS)
@example("\ud83d")
def test_any_text_is_embedded(text: str) -> None:
    answer = {"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]}

    async def embed() -> None:
        async with scripted_server(strict(lambda body: answer)) as server:
            client = EmbeddingServer(server.url, "m")
            vectors, _ = await client.embed([text, "a"], 20)
            await client.aclose()
        assert vectors.shape == (2, 1)

    asyncio.run(embed())


async def test_a_passing_failure_is_tried_again() -> None:
    answers: list[Any] = [500, 429, answer_for({"input": ["1"]})]
    async with scripted_server(lambda path, body: answers.pop(0)) as server:
        client = EmbeddingServer(server.url, "m")
        _, retries = await client.embed(["1"], 20)
        await client.aclose()
    assert retries == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"data": []}, "one vector for each of 2 texts"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]}, "do not count the texts"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}, "no vectors"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": None}]}, "no vectors"),
        ({"data": [{"index": 0, "embedding": [0.0]}, {"index": 1, "embedding": [1.0]}]}, "zero"),
        ({"data": [{"index": 0, "embedding": [math.nan]}, {"index": 1, "embedding": [1.0]}]}, "not finite"),
        ({"error": "no"}, "no list 'data'"),
        ("<html>", "not JSON"),
        ((404, {"error": {"message": "The model `m` does not exist."}}, {}), "The model `m` does not exist"),
    ],
)
async def test_other_answers_are_our_failure(answer: Any, says: str) -> None:
    async with scripted_server(lambda path, body: answer) as server:
        client = EmbeddingServer(server.url, "m")
        with pytest.raises(InfraError) as caught:
            await client.embed(["a", "b"], 20)
        await client.aclose()
    assert says in str(caught.value)
    assert f"embedding server {server.url}" in str(caught.value)


async def test_a_full_server() -> None:
    async with scripted_server(lambda path, body: 429) as server:
        client = EmbeddingServer(server.url, "m")
        with pytest.raises(OverloadedError):
            await client.embed(["a"], 20)
        await client.aclose()


async def test_batches_of_different_lengths() -> None:
    def answer(path: str, body: Any) -> Any:
        return {"data": [{"index": 0, "embedding": [1.0] * int(body["input"][0])}]}

    async with scripted_server(answer) as server:
        client = EmbeddingServer(server.url, "m", batch_size=1)
        with pytest.raises(InfraError, match=r"different lengths: \[3, 4\]"):
            await client.embed(["3", "4"], 20)
        await client.aclose()


async def test_the_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_EMBEDDING_KEY", "secret")
    async with scripted_server(lambda path, body: answer_for(body)) as server:
        client = EmbeddingServer(server.url, "m")
        await client.embed(["1"], 20)
        await client.aclose()
    assert server.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("model", "prefixes"),
    [
        ("intfloat/e5-base-v2", ("query: ", "passage: ")),
        ("/models/multilingual-e5-large/", ("query: ", "passage: ")),
        ("intfloat/e5-mistral-7b-instruct", ("", "")),
        ("BAAI/bge-base-en-v1.5", ("Represent this sentence for searching relevant passages: ", "")),
        ("BAAI/bge-m3", ("", "")),
        ("all-MiniLM-L6-v2", ("", "")),
    ],
)
def test_prefixes_that_models_ask_for(model: str, prefixes: tuple[str, str]) -> None:
    assert known_prefixes(model) == prefixes


async def test_a_password_in_the_address_is_not_shown() -> None:
    client = EmbeddingServer("http://user:secret@127.0.0.1:9/v1/embeddings", "m")
    with pytest.raises(InfraError, match=r"embedding server http://127\.0\.0\.1:9/v1/embeddings unavailable") as caught:
        await client.embed(["text"], 20)
    await client.aclose()
    assert "secret" not in str(caught.value)
