"""A run as one picture: reward parts, turns, calls by tool, and where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .summary import RunSummary

_BLUE, _GREEN, _ORANGE, _GREY = "#4477aa", "#228833", "#ee7733", "#bbbbbb"


def save_chart(summary: RunSummary, path: Path, title: str) -> None:
    """Draw a PNG. Needs matplotlib."""
    import matplotlib as mpl

    with mpl.rc_context({"text.parse_math": False}):  # a `$` in a path or a name is one
        _draw(summary, path, title)


def _draw(summary: RunSummary, path: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    accuracy = "not scored" if summary.accuracy is None else f"accuracy {summary.accuracy:.1%}"
    if len(summary.pass_at_k) > 1:
        k, share = max(summary.pass_at_k.items())
        accuracy += f", pass@{k} {share:.1%}"
    figure.suptitle(f"{title}: {summary.trajectories} trajectories, {accuracy}")
    axes = figure.subplots(2, 2)
    _draw_rewards(axes[0, 0], summary)
    _draw_turns(axes[0, 1], summary)
    _draw_calls(axes[1, 0], summary)
    _draw_time(axes[1, 1], summary)
    figure.savefig(path, dpi=110)


def _draw_rewards(axis: Any, summary: RunSummary) -> None:
    names = [*summary.reward_parts, "total"]
    values = [*summary.reward_parts.values(), summary.mean_reward or 0.0]
    bars = axis.bar(names, values, color=[_BLUE] * (len(names) - 1) + [_GREEN])
    axis.bar_label(bars, fmt="%.3f", padding=2)
    axis.margins(y=0.1)
    axis.set_title("mean reward by part")
    axis.tick_params(axis="x", labelrotation=15)


def _draw_turns(axis: Any, summary: RunSummary) -> None:
    colors = {"correct": _GREEN, "wrong": _ORANGE, "unscored": _BLUE, "masked": _GREY}
    turns = sorted({turn for counts in summary.turns.values() for turn in counts})
    floor = [0] * len(turns)
    for outcome, color in colors.items():
        counts = summary.turns.get(outcome)  # type: ignore[call-overload]
        if not counts:
            continue
        heights = [counts.get(turn, 0) for turn in turns]
        axis.bar([str(turn) for turn in turns], heights, bottom=floor, color=color, label=outcome)
        floor = [low + height for low, height in zip(floor, heights, strict=True)]
    axis.set_title("assistant turns per trajectory")
    if axis.has_data():
        axis.legend()


def _draw_calls(axis: Any, summary: RunSummary) -> None:
    names = list(summary.tools)
    failed = [sum(tool.errors.values()) for tool in summary.tools.values()]
    good = [tool.calls - bad for tool, bad in zip(summary.tools.values(), failed, strict=True)]
    axis.bar(names, good, color=_BLUE, label="worked")
    axis.bar(names, failed, bottom=good, color=_ORANGE, label="error")
    axis.set_title("calls by tool")
    if names:
        axis.legend()


def _draw_time(axis: Any, summary: RunSummary) -> None:
    bars = axis.barh(["run", "queue", "generate"], [summary.run_s, summary.queue_s, summary.generate_s], color=_BLUE)
    axis.bar_label(bars, fmt="%.1f s", padding=3)
    axis.margins(x=0.15)
    axis.set_title("time, summed over trajectories")
    axis.set_xlabel("seconds")
