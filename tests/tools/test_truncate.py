"""Cutting text never splits what belongs together, and says how much is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.tools.truncate import Keep, truncate, truncate_tokens

keeps = st.sampled_from(["head", "tail", "both"])


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("head", "abcd\n[... 6 of 10 characters left out ...]"),
        ("tail", "[... 6 of 10 characters left out ...]\nghij"),
        ("both", "ab\n[... 6 of 10 characters left out ...]\nij"),
    ],
)
def test_each_side(keep: Keep, expected: str) -> None:
    assert truncate("abcdefghij", 4, keep) == expected


def test_x09_chosen_unit_is_characters(cases: dict[str, Any]) -> None:
    case = cases["X09"]["input"]
    shown = truncate(case["tool_output"], case["limits"][0]["chars"])
    assert shown.count("好") == case["limits"][0]["chars"]
    assert f"{len(case['tool_output']) - case['limits'][0]['chars']} of {len(case['tool_output'])} characters" in shown


def test_x09_chosen_unit_is_tokens(cases: dict[str, Any], tokenizer: Any) -> None:
    case = cases["X09"]["input"]

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    limit, total = case["limits"][1]["tokens"], len(encode(case["tool_output"]))
    for keep in ("head", "tail", "both"):
        shown = truncate_tokens(case["tool_output"], limit, encode, keep)  # type: ignore[arg-type]
        kept = "".join(line for line in shown.splitlines() if "left out" not in line)
        assert set(kept) == {"好"}
        assert limit - 6 <= len(encode(kept)) <= limit  # a character is several tokens here, and is never split
        assert f"of {total} tokens left out" in shown


@given(st.text(max_size=80), st.integers(1, 30), keeps)
def test_tokens_are_never_more_than_asked_for(text: str, max_tokens: int, keep: Keep) -> None:
    def encode(part: str) -> list[int]:
        return list(part.encode(errors="surrogatepass"))

    shown = truncate_tokens(text, max_tokens, encode, keep)
    if len(encode(text)) <= max_tokens:
        assert shown == text
        return
    head, _, rest = shown.partition("[... ")
    tail = rest.partition(" ...]")[2].removeprefix("\n")
    head = head.removesuffix("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(encode(head)) + len(encode(tail)) <= max_tokens


@given(st.text(alphabet="ae\u0301\u0302\u200d👩", min_size=1, max_size=40), st.integers(1, 30), keeps)
def test_combining_characters_stay_with_their_base(text: str, max_chars: int, keep: Keep) -> None:
    shown = truncate(text, max_chars, keep)
    if len(text) <= max_chars:
        assert shown == text
        return
    head, _, tail = shown.partition("[... ")
    tail = tail.partition(" ...]")[2].removeprefix("\n")
    head = head.removesuffix("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) <= max_chars
    if tail:
        assert tail[0] not in "\u0301\u0302\u200d"
    following = text[len(head) :][:1]
    assert not head or following not in {"\u0301", "\u0302", "\u200d"}
