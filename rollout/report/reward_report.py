"""A dry run of rewards as a table, lines and a histogram."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from rich.table import Table

from ...rewards.dry_run import TOTAL, DryRun
from ...schemas.errors import ConfigError

_SHOWN = 5


def distribution_table(found: DryRun) -> Table:
    """A line for each data source and part."""
    table = Table(title=f"{found.scored} responses scored, {len(found.failures)} could not be")
    for column in ("data source", "part", "n", "mean", "std", "lowest", "highest", ""):
        table.add_column(column, justify="left" if column in ("data source", "part", "") else "right", overflow="fold")
    for (source, part), values in sorted(found.distributions().items()):
        numbers = (values.mean, values.std, values.lowest, values.highest)
        table.add_row(source, part, str(values.number), *(f"{number:.3f}" for number in numbers), values.verdict)
    return table


def remarks(found: DryRun, baseline: bool) -> list[str]:
    """What else a reader must know, a line each."""
    lines = []
    by_time = sorted(found.part_ms.items(), key=lambda item: -sum(item[1]))
    for part, times in by_time[:_SHOWN]:
        lines.append(f"time: {part} {sum(times) / len(times):.2f} ms each, {max(times):.2f} ms at most")
    lines += _examples("not deterministic: scored twice, it gave two rewards", found.unsteady)
    if baseline:
        share = len(found.disagreements) / max(1, found.scored)
        lines.append(f"baseline: {len(found.disagreements)} of {found.scored} ({share:.0%}) are scored otherwise")
        lines += _examples("baseline, ours", found.disagreements)
    for name, why in list(found.failures.items())[:_SHOWN]:
        lines.append(f"failed: {name}: {why}")
    return lines


def _examples(title: str, pairs: dict[str, tuple[float, float]]) -> list[str]:
    return [f"{title}: {name}: {one:.3f}, {other:.3f}" for name, (one, other) in list(pairs.items())[:_SHOWN]]


def check_histogram(path: Path) -> None:
    """Before anything is scored.

    Raises:
        ConfigError: no picture can be written there.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("dry-run: matplotlib is not installed; install it with: pip install 'rollbox[rollout]'")
    if path.suffix.lower() != ".png" or path.is_dir():
        raise ConfigError(f"histogram: must be a file that ends in .png (got {path})")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"histogram: {path.parent} is no directory that can be written into")


def save_histogram(found: DryRun, path: Path) -> None:
    """A PNG: how the totals of each data source are distributed.

    Raises:
        ConfigError: it cannot be written.
    """
    from matplotlib.figure import Figure

    sources = sorted(source for source, part in found.values if part == TOTAL)
    figure = Figure(figsize=(7, 1 + 2 * len(sources)), layout="constrained")
    for axes, source in zip(figure.subplots(len(sources), squeeze=False)[:, 0], sources, strict=True):
        axes.hist(found.values[source, TOTAL], bins=30, color="#4477aa")
        axes.set_title(f"{source}: reward of {len(found.values[source, TOTAL])} responses", fontsize=9)
        axes.set_ylabel("responses")
    try:
        figure.savefig(path, dpi=100)
    except OSError as error:
        raise ConfigError(f"histogram: {path}: cannot be written: {error.strerror}") from error
