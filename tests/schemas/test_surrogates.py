"""JSON for the wire: what every server can read, and written once where it is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollbox.schemas import surrogates
from rollbox.schemas.surrogates import wire_json, without_lone_surrogates

HALVES = st.text(st.sampled_from("\ud83d\ude00\ud7ff\ue000\U0001f600\\ud83c"), max_size=12)


@example("\ud83d\ude00")
@example("\\ud83d\ude00")
@example("\ud83d\\ude00")
@example("\\\ud83d\ude00")
@given(HALVES)
def test_halves_are_replaced_and_nothing_else(text: str) -> None:
    joined = json.loads(json.dumps(text))
    whole = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in joined)
    assert without_lone_surrogates({text: (text,)}) == json.loads(wire_json({text: [text]})) == {whole: [whole]}


@pytest.mark.parametrize("text", ["plain", "smile \U0001f600\U0001f600", "\ud55c\uad6d\uc5b4", "C:\\users \U0001f600"])
def test_what_is_whole_is_written_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(value: Any) -> Any:
        raise AssertionError("gone through")

    monkeypatch.setattr(surrogates, "without_lone_surrogates", second)
    assert json.loads(wire_json([text])) == [text]
