"""The engines of bench/retrieval.py: each builds something on disk, opens it, and answers with ids and texts."""

from __future__ import annotations

import json
import pickle
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by for from has have in is it its of on or that the this to was were what which who "
        "with",
    )
)
_WORD = re.compile(r"\w+")


def records(corpus: Path) -> Iterator[tuple[str, str]]:
    """Id and contents of each passage."""
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield record["id"], record["contents"]


def words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


class Rollbox:
    """Ours: tantivy, in a folder that is mapped."""

    package = "tantivy"

    @staticmethod
    def build(corpus: Path, folder: Path) -> None:
        from rollbox.retrieval.index.build import BuildOptions, build_index

        build_index(BuildOptions([str(corpus)], folder, "bench"), lambda state: None)

    def __init__(self, folder: Path) -> None:
        from rollbox.retrieval.index.opened import open_index

        self._index = open_index(folder).bm25

    def search(self, query: str, top_k: int) -> list[str]:
        return [hit.id for hit in self._index.search(query, top_k)]


class Bm25s:
    """bm25s with its own stop words and its numba backend; scores and passages mapped."""

    package = "bm25s"

    @staticmethod
    def build(corpus: Path, folder: Path) -> None:
        import bm25s

        passages = [{"id": name, "text": contents} for name, contents in records(corpus)]
        tokens = bm25s.tokenize([passage["text"] for passage in passages], stopwords="en", show_progress=False)
        index = bm25s.BM25()
        index.index(tokens, show_progress=False)
        index.save(str(folder), corpus=passages)

    def __init__(self, folder: Path) -> None:
        import bm25s

        self._bm25s = bm25s
        self._index = bm25s.BM25.load(str(folder), mmap=True, load_corpus=True)
        self._index.backend = "numba"

    def search(self, query: str, top_k: int) -> list[str]:
        tokens = self._bm25s.tokenize([query], stopwords="en", show_progress=False)
        found, _ = self._index.retrieve(tokens, k=top_k, show_progress=False)
        return [passage["id"] for passage in found[0]]


class Fts5:
    """SQLite's FTS5 with Porter stems; queries are words, OR-ed."""

    package = "sqlite3"

    @staticmethod
    def build(corpus: Path, folder: Path) -> None:
        folder.mkdir()
        base = sqlite3.connect(folder / "passages.db")
        base.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(id UNINDEXED, contents, "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        base.executemany("INSERT INTO passages VALUES (?, ?)", records(corpus))
        base.commit()
        base.close()

    def __init__(self, folder: Path) -> None:
        self._base = sqlite3.connect(folder / "passages.db")

    def search(self, query: str, top_k: int) -> list[str]:
        match = " OR ".join(f'"{word}"' for word in words(query))
        found: list[Any] = self._base.execute(
            "SELECT id, contents FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?", (match, top_k)
        ).fetchall()
        return [row[0] for row in found]


class RankBm25:
    """rank_bm25's Okapi, in memory only: what is on disk is a pickle."""

    package = "rank-bm25"

    @staticmethod
    def build(corpus: Path, folder: Path) -> None:
        from rank_bm25 import BM25Okapi

        passages = list(records(corpus))
        index = BM25Okapi([words(contents) for _, contents in passages])
        folder.mkdir()
        with (folder / "index.pickle").open("wb") as file:
            pickle.dump((passages, index), file)

    def __init__(self, folder: Path) -> None:
        with (folder / "index.pickle").open("rb") as file:
            self._passages, self._index = pickle.load(file)

    def search(self, query: str, top_k: int) -> list[str]:
        return [name for name, _ in self._index.get_top_n(words(query), self._passages, n=top_k)]


ENGINES: dict[str, Any] = {"rollbox": Rollbox, "bm25s": Bm25s, "fts5": Fts5, "rank_bm25": RankBm25}
