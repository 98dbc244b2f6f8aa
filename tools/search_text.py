"""How passages are written for the model: the layouts of well-known recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..retrieval.passages import Hit

Layout = Literal["verl", "search_r1", "plain"]


def answer_text(
    queries: Sequence[str],
    results: Sequence[Sequence[Hit]],
    layout: Layout = "verl",
    skipped: Sequence[int] | None = None,
) -> str:
    """The passages of all queries, those of each under the other's.

    Args:
        layout: `verl`: `Doc 1 (Title: "T")`, the text below it, `---` between queries. `search_r1`:
            `Doc 1(Title: "T") text` within `<information>`. `plain`: `Doc 1: text`.
        skipped: for each query the number of passages that were left out because they were shown before.
    """
    counts = skipped or [0] * len(queries)
    parts = [_query_text(*part, layout) for part in zip(queries, results, counts, strict=True)]
    if layout == "search_r1":
        return "<information>" + "\n".join(parts) + "</information>"
    return "\n---\n".join(parts)


def _query_text(query: str, hits: Sequence[Hit], skipped: int, layout: Layout) -> str:
    if not hits and skipped:
        return f'No new passages for "{query.strip()}": you have seen all {skipped} already.'
    if not hits:
        return f'No passages found for "{query.strip()}".'
    between = "\n\n" if layout == "verl" else "\n"
    return between.join(_passage_text(rank, hit, layout) for rank, hit in enumerate(hits, start=1))


def _passage_text(rank: int, hit: Hit, layout: Layout) -> str:
    match layout:
        case "search_r1":
            return f'Doc {rank}(Title: "{hit.title}") {hit.text}' if hit.title else f"Doc {rank} {hit.text}"
        case "plain":
            return f"Doc {rank}: {hit.text}"
    return f'Doc {rank} (Title: "{hit.title}")\n{hit.text}' if hit.title else f"Doc {rank}\n{hit.text}"
