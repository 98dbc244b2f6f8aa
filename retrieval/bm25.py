"""BM25 over a passage file, in memory, by tantivy (extra `search`).

Queries never pass through tantivy's query language: it raises on `what is: "AC/DC"?` and reads `*` as everything. The
text is cut into terms by the analyser that indexed the passages, and the terms are OR-ed. Chinese, Japanese and Korean
write no spaces, so their characters are also indexed singly and in overlapping pairs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..schemas.errors import ConfigError
from .passages import Hit, Passage, split_contents, storable

_MAX_QUERY_TERMS = 64
_MAX_TERM_BYTES = 100
_WRITER_HEAP_BYTES = 64 * 2**20
_CJK_RUN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_ANALYZER = "folded_stems"
# Left out of queries only (they match everything and say nothing), and kept when a query has no other word: "The Who".
_STOP_WORDS = [
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for",
    "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "of", "on", "or", "s",
    "such", "t", "tell", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "were",
    "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would",
]  # fmt: skip


def read_passages(path: Path) -> Iterator[Passage]:
    """The passages of a JSONL file; each line has `id`, and `contents` or `text` (and `title`).

    Raises:
        ConfigError: the file cannot be read, or a line is not such a passage; names file and line number.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _passage(line, f"{path}:{number}")
    except OSError as error:
        raise ConfigError(f"corpus {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"corpus {path}: not UTF-8: {error.reason} at byte {error.start}") from error


def _passage(line: str, where: str) -> Passage:
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ConfigError(f"{where}: must be an object with id and contents (got {type(record).__name__})")
    name = record.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise ConfigError(f"{where}: id: must be a non-empty string or an integer (got {name!r})")
    if "contents" in record:
        body = record["contents"]
        title, text = split_contents(body) if isinstance(body, str) else ("", "")
    else:
        title, body = record.get("title", ""), record.get("text")
        text = body.strip() if isinstance(body, str) else ""
    if not text:
        raise ConfigError(f"{where}: contents (or text): must be a string that is not blank")
    if not isinstance(title, str):
        raise ConfigError(f"{where}: title: must be a string (got {title!r})")
    return Passage(storable(str(name)), storable(title), storable(text))


class Bm25Index:
    """A read-only index. Searching is thread-safe, and releases the interpreter lock."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        """Index `passages`; takes about 0.1 ms of CPU each.

        Raises:
            ConfigError: tantivy is not installed.
        """
        self._tantivy = _import_tantivy()
        self._schema = self._build_schema()
        self._index = self._tantivy.Index(self._schema)
        self._index.register_tokenizer(_ANALYZER, self._analyzer(stop_words=False))
        self._full_terms = self._analyzer(stop_words=False)
        self._query_terms = self._analyzer(stop_words=True)
        self._add(passages)
        self._index.reload()
        self._searcher = self._index.searcher()

    @classmethod
    def from_jsonl(cls, path: str | Path) -> Bm25Index:
        """Index a passage file.

        Raises:
            ConfigError: the file or a line of it is wrong, or holds no passage; or tantivy is not installed.
        """
        index = cls(read_passages(Path(path)))
        if not len(index):
            raise ConfigError(f"corpus {path}: holds no passages")
        return index

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, query: str, top_k: int) -> list[Hit]:
        """The best passages, best first; none for a query without words or with only unknown ones."""
        terms = self._terms(storable(query))
        top_k = min(top_k, len(self))
        if not terms or top_k < 1:
            return []
        should = self._tantivy.Occur.Should
        clauses = [(should, self._tantivy.Query.term_query(self._schema, field, term)) for field, term in terms]
        found = self._searcher.search(self._tantivy.Query.boolean_query(clauses), limit=top_k)
        return [self._hit(address, score) for score, address in found.hits]

    def _terms(self, query: str) -> list[tuple[str, str]]:
        words = self._query_terms.analyze(query) or self._full_terms.analyze(query)
        terms = [("body", word) for word in words] + [("cjk", gram) for gram in _cjk_grams(query)]
        return list(dict.fromkeys(terms))[:_MAX_QUERY_TERMS]

    def _hit(self, address: Any, score: float) -> Hit:
        document = self._searcher.doc(address)
        return Hit(document["id"][0], document["title"][0], document["text"][0], float(score))

    def _add(self, passages: Iterable[Passage]) -> None:
        writer = self._index.writer(_WRITER_HEAP_BYTES, 1)
        for passage in passages:
            body = f"{passage.title}\n{passage.text}"
            writer.add_document(
                self._tantivy.Document(
                    id=passage.id, title=passage.title, text=passage.text, body=body, cjk=" ".join(_cjk_grams(body))
                )
            )
        writer.commit()
        writer.wait_merging_threads()

    def _build_schema(self) -> Any:
        builder = self._tantivy.SchemaBuilder()
        for name in ("id", "title", "text"):
            builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("body", tokenizer_name=_ANALYZER, index_option="freq")
        builder.add_text_field("cjk", tokenizer_name="whitespace", index_option="freq")
        return builder.build()

    def _analyzer(self, stop_words: bool) -> Any:
        filters = self._tantivy.Filter
        builder = self._tantivy.TextAnalyzerBuilder(self._tantivy.Tokenizer.simple())
        builder = builder.filter(filters.remove_long(_MAX_TERM_BYTES)).filter(filters.lowercase())
        builder = builder.filter(filters.ascii_fold())
        if stop_words:
            builder = builder.filter(filters.custom_stopword(_STOP_WORDS))
        return builder.filter(filters.stemmer("english")).build()


def _cjk_grams(text: str) -> list[str]:
    grams: list[str] = []
    for run in _CJK_RUN.findall(text):
        grams += run
        grams += [run[i : i + 2] for i in range(len(run) - 1)]
    return grams


def _import_tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise ConfigError("local search needs tantivy: pip install 'rollbox[search]'") from error
    return tantivy
