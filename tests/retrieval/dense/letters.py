"""An embedder and passages that take no model: for what does not depend on meaning."""

from collections.abc import Sequence

import numpy as np

from rollbox.retrieval.dense.embedder import EmbedderConfig, Vectors, unit_rows
from rollbox.retrieval.passages import Passage
from rollbox.schemas.errors import InfraError

from ..conftest import ListStore


class WordVectors:
    """Vectors of a few numbers, by the letters of a text: quick, and enough where the model does not matter."""

    prefixes = ("", "")

    def __init__(self, dimension: int = 16, salt: int = 0, fails_after: int | None = None) -> None:
        self._dimension = dimension
        self._salt = salt
        self._fails_after = fails_after
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str], timeout_s: float) -> tuple[Vectors, int]:
        self.texts += texts
        if self._fails_after is not None and len(self.texts) > self._fails_after:
            raise InfraError("embedding server: gone")
        rows = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text:
                row[(ord(letter) * 31 + self._salt) % self._dimension] += 1
        return unit_rows(rows), 0

    async def aclose(self) -> None:
        pass


def many(count: int) -> ListStore:
    return ListStore(
        [Passage(str(row), "", f"passage number {row} " + "xyz"[row % 3] * (row % 7)) for row in range(count)]
    )


CONFIG = EmbedderConfig(model="letters")
