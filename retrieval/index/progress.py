"""The bar of a build."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .build import BuildState


class BuildProgress:
    """A context manager. The rate is of this part of the build."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("indexing"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        state = TextColumn("{task.fields[state]}")
        self._progress = Progress(*columns, TimeRemainingColumn(), state, console=console)
        self._bar = self._progress.add_task("", total=None, state="")
        self._started = time.perf_counter()
        self._first_rows: int | None = None

    def __enter__(self) -> BuildProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.refresh()
        self._progress.stop()

    def advance(self, state: BuildState) -> None:
        if self._first_rows is None:
            self._first_rows = state.rows
        rate = (state.rows - self._first_rows) / (time.perf_counter() - self._started)
        bad = f", {state.bad} bad" if state.bad else ""
        text = f"{state.rows:,} passages{bad}, {rate:,.0f}/s"
        self._progress.update(self._bar, total=state.total_bytes, completed=state.done_bytes, state=text)
