"""The summary as a table for the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from .summary import RunSummary


def summary_table(summary: RunSummary, title: str) -> Table:
    table = Table(title=escape(title), show_header=False, title_justify="left", pad_edge=False)
    table.add_column("what", style="bold")
    table.add_column("value")
    for name, value in _rows(summary):
        table.add_row(escape(name), escape(value))
    return table


def _rows(summary: RunSummary) -> list[tuple[str, str]]:
    rows = [
        ("trajectories", f"{summary.trajectories} ({summary.scored} scored, {summary.masked} masked for infra faults)"),
        ("accuracy", _percent(summary.accuracy)),
        *([("pass@k", _pass_at_k(summary))] if len(summary.pass_at_k) > 1 else []),
        ("mean reward", _reward(summary)),
        ("turns per trajectory", f"{summary.mean_turns:.2f}"),
        ("tokens", f"{summary.generated_tokens} generated, {summary.context_tokens} from tools and template"),
        ("ended by", _counts(summary.stop_reasons)),
    ]
    for name, tool in summary.tools.items():
        errors = f"; errors: {_counts(tool.errors)}" if tool.errors else ""
        rows.append((f"calls of {name}", f"{tool.calls}, {tool.run_ms:.1f} ms each{errors}"))
    if summary.images or summary.images_left_out:
        rows.append(("images", f"{summary.images} shown, {summary.images_left_out} left out"))
    rows.append(("error kinds", _counts(summary.error_kinds) or "none"))
    if summary.failed:
        rows.append(("failed through us", _counts({kind: len(ids) for kind, ids in summary.failed.items()})))
    rows.append(("time split", _split(summary)))
    rows.append(("wall clock", f"{summary.wall_s:.1f} s"))
    return rows


def _pass_at_k(summary: RunSummary) -> str:
    shares = ", ".join(f"{k}: {share:.1%}" for k, share in summary.pass_at_k.items())
    return f"{shares} ({summary.questions} questions)"


def _percent(value: float | None) -> str:
    return "not scored" if value is None else f"{value:.1%}"


def _reward(summary: RunSummary) -> str:
    if summary.mean_reward is None:
        return "not scored"
    parts = ", ".join(f"{name} {value:+.3f}" for name, value in summary.reward_parts.items())
    return f"{summary.mean_reward:.3f} = {parts}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _split(summary: RunSummary) -> str:
    total = (summary.generate_s + summary.queue_s + summary.run_s) or 1.0
    shares = {"generate": summary.generate_s, "queue": summary.queue_s, "run": summary.run_s}
    return ", ".join(f"{name} {value:.1f} s ({value / total:.0%})" for name, value in shares.items())
