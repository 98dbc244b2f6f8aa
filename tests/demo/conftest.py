"""One tokenizer for the tests of the demo model."""

from __future__ import annotations

from typing import Any

import pytest

from rollbox.demo.tokenizer import build_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    pytest.importorskip("transformers")
    return build_tokenizer()
