"""The files of a run: trajectories as they finish, then the summary, a chart and one trajectory as text."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from ...schemas.trajectory import Trajectory
from .chart import save_chart
from .summary import RunSummary, summarize
from .text import Decode, trajectory_text


class RunFiles:
    """Writes into `directory`, replacing an earlier run's files. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trajectories: list[Trajectory] = []
        self._stream: TextIO | None = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._stream = (self.directory / "trajectories.jsonl").open("w", encoding="utf-8")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, trajectory: Trajectory) -> None:
        """Append one line and flush it, so that a killed run loses nothing that was finished."""
        assert self._stream is not None
        self._stream.write(trajectory.model_dump_json() + "\n")
        self._stream.flush()
        self.trajectories.append(trajectory)

    def finish(self, wall_s: float, title: str, decode: Decode) -> RunSummary:
        """Write `summary.json`, `chart.png` and `trajectory.txt`."""
        summary = summarize(self.trajectories, wall_s)
        (self.directory / "summary.json").write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
        save_chart(self.trajectories, summary, self.directory / "chart.png", title)
        if self.trajectories:
            shown = trajectory_text(_most_telling(self.trajectories), decode)
            (self.directory / "trajectory.txt").write_text(shown, encoding="utf-8")
        return summary


def _most_telling(trajectories: list[Trajectory]) -> Trajectory:
    """A correct one with most calls, else the one with most calls."""

    def rank(trajectory: Trajectory) -> tuple[bool, int]:
        return bool(trajectory.rewards and trajectory.rewards.correct), len(trajectory.records)

    return max(trajectories, key=rank)
