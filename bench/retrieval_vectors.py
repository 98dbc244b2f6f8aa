"""The kinds of dense index on many vectors: building, asking, what they miss.

    .venv/bin/python bench/retrieval_vectors.py --vectors /tmp/retrieval/wordnet.index/dense [--rows 200000]
        [--kinds flat,ivf,hnsw]

The vectors are those that retrieval_quality.py embedded, again and again with noise of their own (a cosine of about 0.8
to the original), because embedding that many takes hours on a CPU. Queries are drawn the same way.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

QUERIES = 200
TOP_K = 10
NOISE = 0.75
BLOCK_ROWS = 50_000


def noisy(source: np.random.Generator, originals: np.ndarray, count: int) -> np.ndarray:
    chosen = originals[source.integers(len(originals), size=count)]
    vectors = chosen + source.normal(scale=NOISE / chosen.shape[1] ** 0.5, size=chosen.shape)
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def main() -> None:
    from rollbox.retrieval.dense.manifest import VECTORS, VectorRecord, read_record
    from rollbox.retrieval.dense.nearest import build_nearest, open_nearest
    from rollbox.retrieval.dense.vectors import map_vectors

    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kinds", default="flat,ivf,hnsw")
    arguments = parser.parse_args()
    record = read_record(arguments.vectors / "progress.json", VectorRecord)
    originals = np.array(map_vectors(arguments.vectors / VECTORS, record.passages, record.dimension))
    source = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=arguments.vectors) as scratch:
        folder = Path(scratch)
        with (folder / VECTORS).open("wb") as file:
            for start in range(0, arguments.rows, BLOCK_ROWS):
                file.write(noisy(source, originals, min(BLOCK_ROWS, arguments.rows - start)).tobytes())
        vectors = map_vectors(folder / VECTORS, arguments.rows, record.dimension)
        queries = noisy(source, originals, QUERIES)
        exact = open_nearest("flat", folder, vectors).search(queries, TOP_K)[1]
        for kind in arguments.kinds.split(","):
            began = time.process_time()
            build_nearest(kind, folder, vectors)
            built_s = time.process_time() - began
            opened = open_nearest(kind, folder, vectors)
            cpu_ms = []
            found = []
            for query in queries:
                began = time.process_time()
                found.append(opened.search(query[None], TOP_K)[1][0])
                cpu_ms.append((time.process_time() - began) * 1e3)
            same = [len(set(some) & set(all_)) / TOP_K for some, all_ in zip(found, exact, strict=True)]
            row = {
                "kind": kind,
                "rows": arguments.rows,
                "build_cpu_s": round(built_s, 1),
                "query_cpu_ms_p50": round(float(np.median(cpu_ms)), 2),
                "query_cpu_ms_p99": round(float(np.quantile(cpu_ms, 0.99)), 2),
                "recall_at_10": round(float(np.mean(same)), 3),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
