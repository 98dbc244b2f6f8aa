"""The bar of a run: how many trajectories are done, and what is known of them so far."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .tally import RunTally


class RunProgress:
    """A context manager. The rates are of this part of the run."""

    def __init__(self, console: Console, total: int, tally: RunTally) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[state]}"), console=console)
        self._bar = self._progress.add_task("rollouts", total=total, completed=tally.trajectories, state="")
        self._tokens_before, self._calls_before = tally.generated_tokens, tally.calls
        self._started = time.perf_counter()

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.refresh()
        self._progress.stop()

    def advance(self, tally: RunTally) -> None:
        elapsed_s = time.perf_counter() - self._started
        tokens = (tally.generated_tokens - self._tokens_before) / elapsed_s
        calls = (tally.calls - self._calls_before) / elapsed_s
        reward = "" if tally.mean_reward is None else f", reward {tally.mean_reward:.3f}"
        state = f"{tally.correct}/{tally.judged} correct{reward}, {tokens:.0f} tokens/s, {calls:.1f} calls/s"
        self._progress.update(self._bar, completed=tally.trajectories, state=state)
