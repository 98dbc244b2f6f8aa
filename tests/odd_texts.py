"""Texts that a model can write and a wire may not take: half surrogate pairs, NUL, other control characters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = st.text(
    st.one_of(
        st.characters(categories=["Cs"]),
        st.characters(categories=["Cc", "Cf"]),
        st.sampled_from("\0\x7f\x85\u2028\u2029\ufeff\ufffe\U0001f600\U0010ffff\"\\/'{"),
        st.characters(),
    ),
    min_size=1,
    max_size=30,
)


def strict(answer: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """An answer of a scripted server that, as most do, refuses half a surrogate pair: with 422."""

    def answered(path: str, body: Any) -> Any:
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return 422
        return answer(body)

    return answered
