"""The files of a run: trajectories as they finish, then the summary, a chart and one trajectory as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from pydantic import ValidationError

from ...schemas.errors import ConfigError
from ...schemas.trajectory import Trajectory
from ..vision.picture import FOLDER, write_png
from .chart import save_chart
from .parquet import write_parquet
from .summary import RunSummary
from .tally import RunTally
from .text import Decode, trajectory_text

TRAJECTORIES, FAILURES, SETTINGS = "trajectories.jsonl", "failures.jsonl", "run.json"


class RunFiles:
    """Writes into `directory`, and goes on where an earlier part of the same run stopped. A context manager.

    Attributes:
        done: ids of the trajectories that are there already.
        tally: of all that are there.
    """

    def __init__(self, directory: Path, settings: dict[str, Any], *, restart: bool = False) -> None:
        """
        Args:
            settings: what makes it the same run, as JSON values.
            restart: throw an earlier run's files away.
        """
        self.directory = directory
        self.done: set[str] = set()
        self.tally = RunTally()
        self._settings = settings
        self._restart = restart
        self._shown: Trajectory | None = None
        self._streams: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        """
        Raises:
            ConfigError: the directory holds another run, or a file of it cannot be read.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / TRAJECTORIES
        if self._restart:
            path.unlink(missing_ok=True)
            shutil.rmtree(self.directory / FOLDER, ignore_errors=True)
        elif path.exists():
            self._check_settings()
            self._resume(path)
        settings = json.dumps(self._settings, indent=2) + "\n"
        (self.directory / SETTINGS).write_text(settings, encoding="utf-8")
        self._streams[TRAJECTORIES] = path.open("a", encoding="utf-8")
        # Those that failed are tried again.
        self._streams[FAILURES] = (self.directory / FAILURES).open("w", encoding="utf-8")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for stream in self._streams.values():
            stream.close()

    def _check_settings(self) -> None:
        path = self.directory / SETTINGS
        advice = "give another --out, or --restart to throw that run away"
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise ConfigError(f"out: {self.directory} has trajectories but no readable {SETTINGS}; {advice}") from None
        now = json.loads(json.dumps(self._settings))
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if changed:
            shown = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
            raise ConfigError(f"out: {self.directory} holds a run with other settings ({shown}); {advice}")

    def _resume(self, path: Path) -> None:
        """Read what is there. A last line without its end was being written when the run was killed."""
        with path.open("rb+") as file:
            whole = 0
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                try:
                    trajectory = Trajectory.model_validate_json(line)
                except ValidationError as error:
                    raise ConfigError(f"{path}:{number}: is no trajectory: {error.errors()[0]['msg']}") from error
                self._count(trajectory)
            file.truncate(whole)

    def write_images(self, trajectory: Trajectory) -> None:
        """Write what the model was shown to `images/`, once for the same pixels. Blocks: use a thread.

        Before `add`, so that no line names a file that is not there.
        """
        for image in trajectory.images:
            if image.pixels is not None:
                write_png(image.pixels, self.directory / image.file)

    def add(self, trajectory: Trajectory) -> None:
        """Append one line and flush it, so that a killed run loses nothing that was finished.

        One that failed through our fault goes to a file of its own: the next part of the run tries it again.
        """
        stream = self._streams[FAILURES if trajectory.infra_failed else TRAJECTORIES]
        stream.write(trajectory.model_dump_json() + "\n")
        stream.flush()
        self._count(trajectory)

    def _count(self, trajectory: Trajectory) -> None:
        self.done.add(trajectory.trajectory_id)
        self.tally.add(trajectory)
        if self._shown is None or _rank(trajectory) > _rank(self._shown):
            self._shown = trajectory

    def finish(self, wall_s: float, title: str, decode: Decode) -> RunSummary:
        """Write `summary.json`, `trajectories.parquet`, `chart.png` and `trajectory.txt`."""
        summary = self.tally.summary(wall_s)
        (self.directory / "summary.json").write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_parquet(self.directory / TRAJECTORIES, self.directory / "trajectories.parquet")
        save_chart(summary, self.directory / "chart.png", title)
        if self._shown is not None:
            shown = trajectory_text(self._shown, decode)
            (self.directory / "trajectory.txt").write_text(shown, encoding="utf-8")
        return summary


def _rank(trajectory: Trajectory) -> tuple[bool, int]:
    """A correct one with most calls tells most, else the one with most calls."""
    return bool(trajectory.rewards and trajectory.rewards.correct), len(trajectory.records)
