"""The token view: every token once, with its mask, logprob and place; texts by the run's tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.schemas.trajectory import Span, Trajectory
from rollbox.viewer.tokens import PART_TOKENS, TokenTexts, differs, find_tokenizer, token_spans

from .conftest import ORDINARY
from .made_trajectories import as_line, trajectory
from .page_client import Viewer, viewing

SAID = "<think>naïve 🙂</think>\n#### 7"


@pytest.fixture(scope="module")
def tokenizer_dir(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def texts(tokenizer_dir: Path) -> TokenTexts:
    return TokenTexts(tokenizer_dir)


@pytest.fixture
def spoken(tokenizer: Any) -> Trajectory:
    """Generated and context tokens of the demo's real tokenizer."""
    generated = [*tokenizer.encode(SAID, add_special_tokens=False), tokenizer.eos_token_id]
    context = tokenizer.encode("\n<|im_start|>user\n42", add_special_tokens=False)
    ids, split = [*generated, *context], len(generated)
    return trajectory(
        [(SAID, [])],
        prompt_ids=tokenizer.encode("What?", add_special_tokens=False),
        response_ids=ids,
        response_mask=[1] * split + [0] * len(context),
        response_logprobs=[-0.01, -0.3, -0.7, -1.5, -3.0, -9.0, *[-0.5] * (split - 6), *[0.0] * len(context)],
        spans=[
            Span(kind="assistant", turn=0, start=0, end=split),
            Span(kind="context", turn=0, start=split, end=len(ids)),
        ],
    )


def test_texts_are_those_that_were_tokenised(spoken: Trajectory, texts: TokenTexts) -> None:
    generated = spoken.response_ids[: spoken.spans[0].end]
    assert "".join(texts.texts(generated)) == SAID + "<|im_end|>"
    assert not differs(spoken, texts)


def test_every_token_is_there_once_with_its_numbers(spoken: Trajectory, texts: TokenTexts) -> None:
    prompt, assistant, context = token_spans(spoken, texts)
    assert [token.id for token in prompt.tokens] == spoken.prompt_ids
    assert [token.id for token in [*assistant.tokens, *context.tokens]] == spoken.response_ids
    assert [token.position for token in [*assistant.tokens, *context.tokens]] == list(range(len(spoken.response_ids)))
    assert [token.surprise for token in assistant.tokens[:6]] == [0, 1, 2, 3, 4, 5]
    assert assistant.tokens[0].title == f"position 0, id {spoken.response_ids[0]}, logprob -0.0100, probability 99.00%"
    assert context.tokens[0].title.endswith("context: mask 0")


def test_another_tokenizer_is_noticed(spoken: Trajectory, texts: TokenTexts) -> None:
    other = spoken.model_copy(update={"assistant_texts": ["what another tokenizer makes of it"]})
    assert differs(other, texts)


def test_ids_that_the_tokenizer_lacks_are_named(texts: TokenTexts) -> None:
    assert texts.texts([2**70, -1, 10**6]) == [f"[no token {number}]" for number in (2**70, -1, 10**6)]


def test_long_responses_come_in_parts() -> None:
    count = 2 * PART_TOKENS + 10
    ids = list(range(count))
    spans = [
        Span(kind="assistant", turn=0, start=0, end=PART_TOKENS + 5),
        Span(kind="context", turn=0, start=PART_TOKENS + 5, end=count),
    ]
    mask = [1] * (PART_TOKENS + 5) + [0] * (count - PART_TOKENS - 5)
    spoken = trajectory([("a", [])], response_ids=ids, response_mask=mask, response_logprobs=[0.0] * count, spans=spans)
    shown = [token.id for part in (1, 2, 3) for span in token_spans(spoken, None, part) for token in span.tokens
             if span.kind != "prompt"]  # fmt: skip
    assert shown == ids
    assert token_spans(spoken, None, 4) == []


def test_without_a_tokenizer_ids_and_whole_texts_are_shown(viewer: Viewer) -> None:
    page = viewer.get(f"/t/{ORDINARY + 1}/tokens")
    assert "There is no tokenizer" in page.text
    assert 'class="tok s0 id"' in page.text
    assert page.text.count("&lt;script&gt;document") >= 2


@pytest.mark.parametrize("where", ["run", "run/tokenizer", "given"])
def test_the_tokenizer_is_found(where: str, spoken: Trajectory, tokenizer_dir: Path, tmp_path: Path) -> None:
    (tmp_path / where).mkdir(parents=True)
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "trajectories.jsonl").write_bytes(as_line(spoken))
    (tmp_path / where / "tokenizer.json").write_bytes((tokenizer_dir / "tokenizer.json").read_bytes())
    options = ("--tokenizer", str(tmp_path / where)) if where == "given" else ()
    with viewing(tmp_path / "run", *options) as viewer:
        text = viewer.get_whole("/t/1/tokens").text
    assert "There is no tokenizer" not in text
    assert "&lt;|im_end|&gt;</span>" in text
    assert ">🙂</span>" in text


@pytest.mark.parametrize("content", [None, "not json", "{}"])
def test_a_wrong_tokenizer_is_said_at_the_start(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError, match=r"tokenizer: .*tokenizer\.json"):
        find_tokenizer(tmp_path, tmp_path)
