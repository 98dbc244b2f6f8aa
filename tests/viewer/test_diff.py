"""What two trajectories say differently: turns aligned, words marked, both texts whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.viewer.diff import Piece, compare, step_pairs

from .made_trajectories import call, trajectory
from .page_client import Viewer


def changed(pieces: list[Piece] | None) -> list[str]:
    return [piece.text for piece in pieces or [] if piece.changed]


def test_only_the_words_that_differ_are_marked() -> None:
    left, right = compare("The sum is 12 spoons.", "The sum is 105 spoons!")
    assert changed(left) == ["12", "."]
    assert changed(right) == ["105", "!"]


texts = st.lists(st.sampled_from(["a", "bb", " ", "\n", ".", "é", "<"]), max_size=40).map("".join)


@settings(deadline=None)
@given(left=texts, right=texts)
def test_the_pieces_are_the_texts_and_what_is_unmarked_is_common(left: str, right: str) -> None:
    a, b = compare(left, right)
    assert "".join(piece.text for piece in a) == left
    assert "".join(piece.text for piece in b) == right
    assert [piece.text for piece in a if not piece.changed] == [piece.text for piece in b if not piece.changed]


def test_equal_turns_are_found_around_one_that_only_one_side_has() -> None:
    same = [("first", [(call(0), "1")])]
    left = trajectory([*same, ("#### 1", [])])
    right = trajectory([*same, ("wait", [(call(1), "2")]), ("#### 1", [])])
    pairs = step_pairs(left, right)
    assert [(pair.role, pair.same is not None) for pair in pairs] == [
        ("assistant", True),
        ("tool", True),
        ("assistant", False),
        ("tool", False),
        ("assistant", True),
    ]
    assert [(pair.left, changed(pair.right)) for pair in pairs[2:4]] == [(None, ["wait"]), (None, ["2"])]


def test_long_texts_are_compared_by_lines_or_whole() -> None:
    rng = random.Random(0)
    lines = [" ".join(rng.choice("abcd") for _ in range(20)) for _ in range(500)]
    other = [*lines[:250], "another line", *lines[251:]]
    left, right = compare("\n".join(lines), "\n".join(other))
    assert changed(left) == [lines[250] + "\n"]
    assert changed(right) == ["another line\n"]
    left, _ = compare("a b\n" * 30_000, "b a\n" * 30_000)
    assert changed(left) == ["a b\n" * 30_000]


@pytest.mark.parametrize("text", ["a " * 1200, "ab" * 20_000, "a\n" * 20_000])
def test_repetitive_texts_are_compared_too(text: str) -> None:
    left, right = compare(text, text[1:] + "b")
    assert "".join(piece.text for piece in left) == text
    assert "".join(piece.text for piece in right) == text[1:] + "b"


def test_the_page_marks_both_sides(viewer: Viewer) -> None:
    page = viewer.get("/diff?a=1&b=2")
    assert page.status == 200
    assert '<mark class="a">' in page.text
    assert '<mark class="b">' in page.text
    assert "The two say the same" in viewer.get("/diff?a=1&b=1").text
    assert "different questions" in viewer.get("/diff?a=1&b=9").text
