"""What several workers say about themselves, as one server says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def added_pools(pools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The `pool` of several workers' `/v1/info` as one: numbers are added, the rest is the first one's."""
    first = dict(pools[0])
    for name, value in first.items():
        if isinstance(value, int):
            first[name] = sum(pool[name] for pool in pools)
    return first


def added_metrics(texts: Sequence[str]) -> str:
    """Prometheus' text format of several workers as one: samples of one name and labels are added."""
    heads: dict[str, list[str]] = {}
    values: dict[str, dict[str, float]] = {}
    for text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
            if line.startswith("#"):
                known = heads.setdefault(family, [])
                if line not in known:
                    known.append(line)
                continue
            sample, _, value = line.rpartition(" ")
            samples = values.setdefault(family, {})
            if family.endswith("_created"):  # times, of which the first counts
                samples[sample] = min(samples.get(sample, float("inf")), float(value))
            else:
                samples[sample] = samples.get(sample, 0.0) + float(value)
    lines = []
    for family, head in heads.items():
        lines += [*head, *(f"{sample} {value}" for sample, value in values.get(family, {}).items())]
    return "\n".join(lines) + "\n"
