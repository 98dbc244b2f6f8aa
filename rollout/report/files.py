"""The files of a run: trajectories as they finish, then the summary, a chart and one trajectory as text."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from pydantic import ValidationError

from ...schemas.errors import ConfigError, InfraError
from ...schemas.trajectory import Trajectory
from ..vision.picture import FOLDER, write_png
from .chart import save_chart
from .parquet import write_parquet
from .run_lock import lock
from .run_settings import SERVED, SETTINGS, check_same, read_settings
from .summary import RunSummary
from .tally import RunTally
from .text import Decode, trajectory_text

TRAJECTORIES, FAILURES = "trajectories.jsonl", "failures.jsonl"
SUMMARY, TABLE, CHART, SHOWN = "summary.json", "trajectories.parquet", "chart.png", "trajectory.txt"


class RunFiles:
    """Writes into `directory`, and goes on where an earlier part of the same run stopped. A context manager.

    Entering it looks at what is there, and keeps other runs out; only `begin` changes it.

    Attributes:
        done: ids of the trajectories that are there already.
        tally: of all that are there.
    """

    def __init__(self, directory: Path, settings: dict[str, Any], *, restart: bool = False) -> None:
        """
        Args:
            settings: what makes it the same run, as far as it is known before the engine runs, as JSON values.
            restart: throw an earlier run's files away.
        """
        self.directory = directory
        self.done: set[str] = set()
        self.tally = RunTally()
        self._settings = settings
        self._restart = restart
        self._before: dict[str, Any] = {}
        self._shown: Trajectory | None = None
        self._streams: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        """
        Raises:
            ConfigError: the directory holds another run, is written to by another process, or a file of it cannot be
                read or written.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                settings = stack.enter_context((self.directory / SETTINGS).open("a", encoding="utf-8"))
                lock(settings, self.directory)
                if not self._restart:
                    self._look()
            except OSError as error:
                raise ConfigError(f"out: {self.directory} cannot be used: {error.strerror or error}") from error
            stack.pop_all()
        self._streams[SETTINGS] = settings
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for stream in self._streams.values():
            # What a full disk did not take is known already; closing tries to write it again.
            with contextlib.suppress(OSError) if exc_type is not None else self._writing():
                stream.close()

    def begin(self, served: dict[str, Any]) -> None:
        """Throw away what is to be thrown away, and note the settings.

        Args:
            served: further settings, known only once the engine runs.

        Raises:
            ConfigError: they are not those of the run that is there. InfraError: the disk is full, or the like.
        """
        known = self._before.get(SERVED, {})
        both = [name for name in served if name in known]
        check_same(self.directory, {name: known[name] for name in both}, {name: served[name] for name in both})
        text = json.dumps({**self._settings, SERVED: served}, indent=2) + "\n"
        with self._writing():
            if self._restart:
                for name in (TRAJECTORIES, SUMMARY, TABLE, CHART, SHOWN):
                    (self.directory / name).unlink(missing_ok=True)
                shutil.rmtree(self.directory / FOLDER, ignore_errors=True)
            if SERVED not in self._before:  # on a full disk, a file that is written anew is lost
                (self.directory / SETTINGS).write_text(text, encoding="utf-8")
            self._streams[TRAJECTORIES] = (self.directory / TRAJECTORIES).open("a", encoding="utf-8")
            # Those that failed are tried again.
            self._streams[FAILURES] = (self.directory / FAILURES).open("w", encoding="utf-8")

    def _look(self) -> None:
        """A run that has no trajectory yet may be begun anew with other settings."""
        path = self.directory / TRAJECTORIES
        if not path.exists() or not path.stat().st_size:
            return
        self._before = read_settings(self.directory)
        check_same(
            self.directory, {name: self._before[name] for name in self._before if name != SERVED}, self._settings
        )
        self._resume(path)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InfraError(
                f"{error.filename or self.directory}: cannot be written: {error.strerror or error}; "
                "what is in the files stays, and the same command goes on with it"
            ) from error

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

        Raises:
            InfraError: the disk is full, or the like.
        """
        with self._writing():
            for image in trajectory.images:
                if image.pixels is not None:
                    write_png(image.pixels, self.directory / image.file)

    def add(self, trajectory: Trajectory) -> None:
        """Append one line and flush it, so that a killed run loses nothing that was finished.

        One that failed through our fault goes to a file of its own: the next part of the run tries it again.

        Raises:
            InfraError: the disk is full, or the like.
        """
        stream = self._streams[FAILURES if trajectory.infra_failed else TRAJECTORIES]
        with self._writing():
            stream.write(trajectory.model_dump_json() + "\n")
            stream.flush()
        self._count(trajectory)

    def _count(self, trajectory: Trajectory) -> None:
        self.done.add(trajectory.trajectory_id)
        self.tally.add(trajectory)
        if self._shown is None or _rank(trajectory) > _rank(self._shown):
            self._shown = trajectory

    def finish(self, wall_s: float, title: str, decode: Decode) -> RunSummary:
        """Write `summary.json`, `trajectories.parquet`, `chart.png` and `trajectory.txt`.

        Raises:
            InfraError: the disk is full, or the like.
        """
        summary = self.tally.summary(wall_s)
        with self._writing():
            (self.directory / SUMMARY).write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
            write_parquet(self.directory / TRAJECTORIES, self.directory / TABLE)
            save_chart(summary, self.directory / CHART, title)
            if self._shown is not None:
                shown = trajectory_text(self._shown, decode)
                (self.directory / SHOWN).write_text(shown, encoding="utf-8")
        return summary


def _rank(trajectory: Trajectory) -> tuple[bool, int]:
    """A correct one with most calls tells most, else the one with most calls."""
    return bool(trajectory.rewards and trajectory.rewards.correct), len(trajectory.records)
