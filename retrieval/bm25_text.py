"""How passages become terms of a tantivy index, and queries too.

Queries never pass through tantivy's query language: it raises on `what is: "AC/DC"?` and reads `*` as everything. The
text is cut into terms by the analyser that indexed the passages, and the terms are OR-ed. Chinese, Japanese and Korean
write no spaces, so their characters are also indexed singly and in overlapping pairs.
"""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

from ..schemas.errors import ConfigError
from .passages import Passage

ANALYZER = "folded_stems"
ANALYSIS = {"tokenizer": "simple", "max_term_bytes": 100, "lowercase": True, "ascii_fold": True, "stemmer": "english"}
"""Written into an index's manifest. Another analysis would look for terms that the index does not have."""
_MISSING = "local search needs tantivy: pip install 'rollbox[search]'"
_CJK_RUN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
# Left out of queries only (they match everything and say nothing), and kept when a query has no other word: "The Who".
_STOP_WORDS = [
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for",
    "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "of", "on", "or", "s",
    "such", "t", "tell", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "were",
    "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would",
]  # fmt: skip


def require_tantivy() -> None:
    """As `import_tantivy`, without the import."""
    if importlib.util.find_spec("tantivy") is None:
        raise ConfigError(_MISSING)


def import_tantivy() -> Any:
    """
    Raises:
        ConfigError: tantivy is not installed.
    """
    try:
        import tantivy
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    return tantivy


def build_schema(tantivy: Any) -> Any:
    """`passage` is title and text as JSON: as stored text they would be indexed too, each as one long term."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field("passage", stored=True)
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_text_field("body", tokenizer_name=ANALYZER, index_option="freq")
    builder.add_text_field("cjk", tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def build_analyzer(tantivy: Any, stop_words: bool) -> Any:
    filters = tantivy.Filter
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    builder = builder.filter(filters.remove_long(ANALYSIS["max_term_bytes"])).filter(filters.lowercase())
    builder = builder.filter(filters.ascii_fold())
    if stop_words:
        builder = builder.filter(filters.custom_stopword(_STOP_WORDS))
    return builder.filter(filters.stemmer(ANALYSIS["stemmer"])).build()


def document_of(tantivy: Any, passage: Passage, row: int) -> Any:
    """What is added to an index. `row`: the passage's place in the corpus, from 0."""
    kept = [passage.title, passage.text] if passage.raw is None else [passage.title, passage.text, passage.raw]
    body = f"{passage.title}\n{passage.text}"
    packed = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()
    document = tantivy.Document(id=passage.id, passage=packed, body=body, cjk=" ".join(cjk_grams(body)))
    document.add_unsigned("row", row)
    return document


def passage_of(document: Any) -> Passage:
    """The passage of a stored document."""
    return Passage(document["id"][0], *json.loads(document["passage"][0]))


def cjk_grams(text: str) -> list[str]:
    grams: list[str] = []
    for run in _CJK_RUN.findall(text):
        grams += run
        grams += [run[i : i + 2] for i in range(len(run) - 1)]
    return grams
