"""Search engines side by side on passages that retrieval_data.py made: building, asking, memory.

    .venv/bin/pip install bm25s numba rank-bm25
    .venv/bin/python bench/retrieval.py --data /tmp/retrieval [--sizes 200000] [--engines rollbox,fts5]

Each engine builds in one process and is asked in another, one query at a time, the three best passages of each. CPU
time counts all threads; a machine that others use too does not disturb it. `anon.` is the memory that the system cannot
take back, after the queries. Engines are asked as many of the 1,000 queries as --seconds allow.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TOP_K = 3
WARM_UP = 20
TIMES = ("open_s", "cpu_p50_ms", "cpu_p99_ms", "wall_p50_ms", "wall_p99_ms")


def memory_mb(field: str) -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def build(engine: Any, corpus: Path, folder: Path) -> dict[str, float]:
    started = time.perf_counter()
    engine.build(corpus, folder)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "build_wall_s": time.perf_counter() - started,
        "build_cpu_s": usage.ru_utime + usage.ru_stime,
        "build_peak_mb": usage.ru_maxrss / 1024,
        "disk_mb": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20,
    }


def ask(engine: Any, folder: Path, queries: list[str], seconds: float) -> dict[str, float]:
    started = time.perf_counter()
    opened = engine(folder)
    opened.search(queries[0], TOP_K)
    open_s = time.perf_counter() - started
    for query in queries[:WARM_UP]:
        opened.search(query, TOP_K)
    cpu_ms: list[float] = []
    wall_ms: list[float] = []
    began = time.perf_counter()
    for query in queries:
        cpu, wall = time.process_time(), time.perf_counter()
        opened.search(query, TOP_K)
        cpu_ms.append((time.process_time() - cpu) * 1e3)
        wall_ms.append((time.perf_counter() - wall) * 1e3)
        if time.perf_counter() - began > seconds:
            break
    return {
        "open_s": open_s,
        "asked": len(cpu_ms),
        "cpu_p50_ms": statistics.median(cpu_ms),
        "cpu_p99_ms": statistics.quantiles(cpu_ms, n=100)[98],
        "wall_p50_ms": statistics.median(wall_ms),
        "wall_p99_ms": statistics.quantiles(wall_ms, n=100)[98],
        "per_cpu_s": 1e3 / statistics.fmean(cpu_ms),
        "rss_mb": memory_mb("Rss"),
        "anonymous_mb": memory_mb("Anonymous"),
    }


def in_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def of_package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        import sqlite3

        return sqlite3.sqlite_version


def report(size: int, name: str, package: str, row: dict[str, float]) -> None:
    rate = size / row["build_cpu_s"]
    built = f"{row['build_cpu_s']:9.1f} {rate:9,.0f} {row['build_peak_mb']:8.0f} {row['disk_mb']:8.0f}"
    times = " ".join(f"{row[key]:8.2f}" for key in TIMES)
    memory = f"{row['per_cpu_s']:8.1f} {row['rss_mb']:7.0f} {row['anonymous_mb']:7.0f} {row['asked']:6.0f}"
    print(f"{size:9,} {name + ' ' + of_package(package):18} {built} {times} {memory}", flush=True)


def main() -> None:
    from retrieval_engines import ENGINES

    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", default="200000")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--one", nargs=3, metavar=("BUILD|ASK", "ENGINE", "SIZE"))
    arguments = parser.parse_args()
    data: Path = arguments.data
    if arguments.one:
        step, name, size = arguments.one
        folder = data / f"built-{name}-{size}"
        queries = (data / "queries.txt").read_text(encoding="utf-8").splitlines()
        engine = ENGINES[name]
        done = (
            build(engine, data / f"corpus-{size}.jsonl", folder)
            if step == "BUILD"
            else ask(engine, folder, queries, arguments.seconds)
        )
        print(json.dumps(done))
        return
    head = ("build CPU", "per CPU s", "peak MB", "disk MB", "open s", "CPU p50", "CPU p99", "wall p50", "wall p99")
    print(
        f"{'passages':>9} {'engine':18} {head[0]:>9} {head[1]:>9} " + " ".join(f"{each:>8}" for each in head[2:]),
        end="",
    )
    print(f" {'/CPU s':>8} {'RSS MB':>7} {'anon.':>7} {'asked':>6}")
    for size in arguments.sizes.split(","):
        for name in arguments.engines.split(","):
            folder = data / f"built-{name}-{size}"
            shutil.rmtree(folder, ignore_errors=True)
            common = ("--data", str(data), "--seconds", str(arguments.seconds), "--one")
            row = in_process(*common, "BUILD", name, size) | in_process(*common, "ASK", name, size)
            report(int(size), name, ENGINES[name].package, row)
            if name != "rollbox":
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
