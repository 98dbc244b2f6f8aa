"""BM25 over passages by tantivy (extra `search`): in memory, or a folder that is mapped into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError, InfraError
from .bm25_text import ANALYZER, build_analyzer, build_schema, cjk_grams, document_of, import_tantivy, passage_of
from .index.corpus_records import read_passages
from .passages import Hit, Passage, storable

_MAX_QUERY_TERMS = 64
_WRITER_HEAP_BYTES = 64 * 2**20
_ROWS_AT_A_TIME = 1000


class Bm25Index:
    """A read-only index. Searching is thread-safe, and releases the interpreter lock."""

    def __init__(self, index: Any) -> None:
        """`index` is tantivy's, of `build_schema`; what it holds now is what is searched."""
        self._tantivy = import_tantivy()
        index.config_reader("manual")  # else a thread of its own looks at the folder twice a second
        index.reload()
        self._schema = index.schema
        self._searcher = index.searcher()
        self._full_terms = build_analyzer(self._tantivy, stop_words=False)
        self._query_terms = build_analyzer(self._tantivy, stop_words=True)

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Bm25Index:
        """Index `passages` in memory; takes about 0.1 ms of CPU each.

        Raises:
            ConfigError: tantivy is not installed.
        """
        tantivy = import_tantivy()
        index = tantivy.Index(build_schema(tantivy))
        index.register_tokenizer(ANALYZER, build_analyzer(tantivy, stop_words=False))
        writer = index.writer(_WRITER_HEAP_BYTES, 1)
        for row, passage in enumerate(passages):
            writer.add_document(document_of(tantivy, passage, row))
        writer.commit()
        writer.wait_merging_threads()
        return cls(index)

    @classmethod
    def from_jsonl(cls, path: str | Path) -> Bm25Index:
        """Index a passage file in memory.

        Raises:
            ConfigError: the file or a line of it is wrong, or holds no passage; or tantivy is not installed.
        """
        index = cls.of(read_passages(Path(path)))
        if not len(index):
            raise ConfigError(f"corpus {path}: holds no passages")
        return index

    @classmethod
    def open(cls, folder: Path) -> Bm25Index:
        """Map an index into memory. Nothing is written into `folder`, and it may be deleted afterwards.

        Raises:
            ConfigError: it cannot be opened.
        """
        tantivy = import_tantivy()
        with tempfile.TemporaryDirectory(prefix="rollbox-index-") as links, readable(f"index {folder}"):
            # tantivy takes a lock by writing a file beside those that it reads, and the folder may be read-only.
            for file in folder.iterdir():
                if not file.name.endswith(".lock"):
                    (Path(links) / file.name).symlink_to(file.resolve())
            return cls(tantivy.Index.open(links))

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, query: str, top_k: int) -> list[Hit]:
        """The best passages, best first; none for a query without words or with only unknown ones.

        Raises:
            InfraError: the index is damaged.
        """
        terms = self._terms(storable(query))
        top_k = min(top_k, len(self))
        if not terms or top_k < 1:
            return []
        should = self._tantivy.Occur.Should
        clauses = [(should, self._tantivy.Query.term_query(self._schema, field, term)) for field, term in terms]
        with intact():
            found = self._searcher.search(self._tantivy.Query.boolean_query(clauses), limit=top_k, count=False)
            return [Hit.of(passage_of(self._searcher.doc(address)), float(score)) for score, address in found.hits]

    def passages_at(self, rows: Sequence[int]) -> list[Passage]:
        """The passages of these rows of the corpus, counted from 0, in the order asked for.

        Raises:
            IndexError: there is no such row. InfraError: the index is damaged.
        """
        wanted = sorted(set(rows))
        if not wanted:
            return []
        if wanted[0] < 0 or wanted[-1] >= len(self):
            raise IndexError(f"row {wanted[0] if wanted[0] < 0 else wanted[-1]}: the index has {len(self)} rows")
        found = self._in_row_order(self._tantivy.Query.term_set_query(self._schema, "row", wanted), len(wanted))
        by_row = dict(zip(wanted, found, strict=True))
        return [by_row[row] for row in rows]

    def passages(self) -> Iterator[Passage]:
        """All passages in the order of the corpus.

        Raises:
            InfraError: the index is damaged.
        """
        unsigned = self._tantivy.FieldType.Unsigned
        for first in range(0, len(self), _ROWS_AT_A_TIME):
            last = min(first + _ROWS_AT_A_TIME, len(self)) - 1
            rows = self._tantivy.Query.range_query(self._schema, "row", unsigned, first, last, use_inverted_index=True)
            yield from self._in_row_order(rows, last - first + 1)

    def has_id(self, name: str) -> bool:
        """Whether there is a passage of this id."""
        return bool(self._searcher.doc_freq("id", name))

    def _in_row_order(self, query: Any, count: int) -> list[Passage]:
        with intact():
            order = self._tantivy.Order.Asc
            found = self._searcher.search(query, limit=count, count=False, order_by_field="row", order=order).hits
            if len(found) != count:
                raise InfraError(f"the index is damaged: of {count} rows it has {len(found)}")
            return [passage_of(self._searcher.doc(address)) for _, address in found]

    def _terms(self, query: str) -> list[tuple[str, str]]:
        words = self._query_terms.analyze(query) or self._full_terms.analyze(query)
        terms = [("body", word) for word in words] + [("cjk", gram) for gram in cjk_grams(query)]
        return list(dict.fromkeys(terms))[:_MAX_QUERY_TERMS]


@contextmanager
def readable(what: str) -> Iterator[None]:
    """
    Raises:
        ConfigError: tantivy cannot read it.
    """
    try:
        with intact():
            yield
    except (InfraError, OSError) as error:
        raise ConfigError(f"{what}: cannot be opened: {error}; build it again with --restart") from error


@contextmanager
def intact() -> Iterator[None]:
    """
    Raises:
        InfraError: tantivy found that its files are damaged.
    """
    try:
        yield
    except ValueError as error:
        raise InfraError(f"the index is damaged: {error}") from error
    except BaseException as error:
        # A Rust panic, which is not an Exception so that nobody catches it by mistake. The process is sound after it.
        if type(error).__name__ != "PanicException":
            raise
        raise InfraError("the index is damaged: tantivy panicked; see the server's log") from error
