"""Steps of a reasoning end on the token that holds their last character, for both families of tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

from rollbox.demo.tokenizer import build_tokenizer
from rollbox.rewards.steps import split_steps, step_ends
from rollbox.rewards.token_ends import end_tokens
from rollbox.rewards.trajectory import trajectory_of_text
from rollbox.schemas.trajectory import Decode, Sample, Span, StopReason, Trajectory

from .trajectories import sample

DEMO = build_tokenizer()


def byte_level(ids: Sequence[int]) -> str:
    return str(DEMO.decode(list(ids), skip_special_tokens=False))


def sentencepiece() -> tuple[Tokenizer, Decode]:
    """As Llama 2's: words carry their space in front, other characters are bytes, and the first space is taken off."""
    words = ["\u2581", "\u2581so", "\u2581it", "is", "\u2581is", "5", ".", "\n", "a", "n", "d", "\u2581and"]
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {word: 256 + i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, [], byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer, lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


SENTENCEPIECE, by_sentencepiece = sentencepiece()
FAMILIES: dict[str, Decode] = {"byte_level": byte_level, "sentencepiece": by_sentencepiece}


def encoded(text: str, family: str) -> list[int]:
    if family == "byte_level":
        return list(DEMO.encode(text, add_special_tokens=False))
    return list(SENTENCEPIECE.encode(text, add_special_tokens=False).ids)


def expected(ids: Sequence[int], text: str, end: int, decode: Decode) -> int | None:
    """By the definition: the shortest start of the ids whose text agrees with the whole up to the end."""
    return next((k - 1 for k in range(1, len(ids) + 1) if agrees(decode(ids[:k]), text, end)), None)


def agrees(said: str, text: str, end: int) -> bool:
    return len(said) >= end and said[:end] == text[:end]


def check(ids: list[int], decode: Decode, data: st.DataObject) -> None:
    text = decode(ids)
    ends = sorted(data.draw(st.sets(st.integers(1, max(1, len(text))), max_size=8)))
    assert end_tokens(ids, text, ends, decode) == [expected(ids, text, end, decode) for end in ends]


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=150)
@given(text=st.text(max_size=120), cut=st.integers(0, 400), data=st.data())
def test_any_text_cut_anywhere_agrees_with_the_definition(
    family: str, text: str, cut: int, data: st.DataObject
) -> None:
    check(encoded(text, family)[:cut], FAMILIES[family], data)


@settings(deadline=None, max_examples=150)
@given(ids=st.lists(st.integers(0, len(DEMO) - 1), max_size=200), data=st.data())
def test_any_ids_at_all_agree_with_the_definition(ids: list[int], data: st.DataObject) -> None:
    check(ids, byte_level, data)


STORY = "Let me see: 9 \u2212 8 = 1 \U0001f44d.\n\n\n\nThen \u8ba1\u7b97, na\u00efvely.\n\nSo it is #### 5 \U0001f600"


def rolled(text: str, family: str) -> Trajectory:
    ids = encoded(text, family)
    context = [7, 7, 7]
    return Trajectory(
        trajectory_id="t",
        sample=Sample(sample_id="s", data_source="any", messages=[{"role": "user", "content": "?"}]),
        messages=[],
        prompt_ids=[1],
        response_ids=[*ids, *context, *ids],
        response_mask=[1] * len(ids) + [0] * 3 + [1] * len(ids),
        response_logprobs=[0.0] * (2 * len(ids) + 3),
        spans=[
            Span(kind="assistant", turn=0, start=0, end=len(ids)),
            Span(kind="context", turn=0, start=len(ids), end=len(ids) + 3),
            Span(kind="assistant", turn=1, start=len(ids) + 3, end=2 * len(ids) + 3),
        ],
        assistant_texts=[text, text],
        stop_reason=StopReason.ANSWERED,
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", [STORY, "x" * 500 + STORY * 9], ids=["short", "long"])
def test_a_steps_reward_lies_on_the_token_of_its_last_character(text: str, family: str) -> None:
    decode = FAMILIES[family]
    of = rolled(text, family).decoded_by(decode)
    assert decode(of.response_ids[: of.spans[0].end]) == text
    steps = split_steps(of)
    ends = step_ends(of, steps)
    assert ends == sorted(ends)
    for step, end in zip(steps, ends, strict=True):
        span = of.spans[2 * step.turn]
        assert span.start <= end < span.end
        with_it, without = decode(of.response_ids[span.start : end + 1]), decode(of.response_ids[span.start : end])
        assert text[: step.end].endswith(step.text)
        assert with_it.startswith(text[: step.end])
        assert not without.startswith(text[: step.end])


pieces = st.text(st.sampled_from("ab5 .\n\u00e9\u8ba1\U0001f600#"), max_size=12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("known", [True, False], ids=["decoded", "from a file"])
@settings(deadline=None, max_examples=100)
@given(texts=st.lists(pieces, min_size=1, max_size=5))
def test_ends_stay_in_their_turn_and_in_order(known: bool, family: str, texts: list[str]) -> None:
    of = rolled("\n\n".join(texts), family)
    if known:
        of.decoded_by(FAMILIES[family])
    steps = split_steps(of)
    ends = step_ends(of, steps)
    assert ends == sorted(ends)
    assert [step.text for step in steps] == [
        piece.strip() for piece in "\n\n".join(texts).split("\n\n") if piece.strip()
    ] * 2
    for step, end in zip(steps, ends, strict=True):
        assert of.spans[2 * step.turn].start <= end < of.spans[2 * step.turn].end


@given(st.lists(st.sampled_from(["a", "\n\n", "\n", " "]), max_size=12).map("".join), st.integers(1, 4))
def test_any_number_of_steps_is_cut_to_the_limit_and_no_text_is_lost(text: str, limit: int) -> None:
    of = trajectory_of_text(sample(), text)
    pieces = [piece.strip() for piece in text.split("\n\n") if piece.strip()]
    assert [step.text for step in split_steps(of)] == pieces
    steps = split_steps(of, limit=limit)
    assert len(steps) == min(limit, len(pieces))
    assert [step.text for step in steps[:-1]] == pieces[: max(0, len(steps) - 1)]
    assert all(text[: step.end].rstrip().endswith(step.text) for step in steps)
    assert text[steps[-1].end :].strip() == "" if steps else not pieces


def test_ids_and_text_that_do_not_belong_together_fall_back_to_shares() -> None:
    of = rolled(STORY, "byte_level")
    by_share = step_ends(of, split_steps(of))
    assert step_ends(of.decoded_by(lambda ids: "?" * len(ids)), split_steps(of)) == by_share


def test_what_decodes_is_not_written(tmp_path: Any) -> None:
    of = rolled(STORY, "byte_level").decoded_by(byte_level)
    assert Trajectory.model_validate_json(of.model_dump_json()).decode is None
    assert of.model_copy().decode is byte_level
