"""One run of 10,000 trajectories with every odd case behind it, and a viewer of it, for the tests that only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbox.schemas.trajectory import Trajectory

from .made_trajectories import UNREADABLE, as_line, odd, ordinary
from .page_client import Viewer, viewing

ORDINARY = 10_000


@pytest.fixture(scope="session")
def made() -> dict[int, Trajectory]:
    """The readable trajectories by their line."""
    return dict(enumerate([*ordinary(ORDINARY), *odd()], start=1))


@pytest.fixture(scope="session")
def unreadable_lines(made: dict[int, Trajectory]) -> list[int]:
    return [max(made) + number for number in range(1, len(UNREADABLE) + 1)]


@pytest.fixture(scope="session")
def run_dir(made: dict[int, Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    with (directory / "trajectories.jsonl").open("wb") as file:
        file.writelines(map(as_line, made.values()))
        file.writelines(line + b"\n" for line in UNREADABLE)
    return directory


@pytest.fixture(scope="session")
def viewer(run_dir: Path) -> Iterator[Viewer]:
    with viewing(run_dir) as running:
        running.get_whole("/")
        yield running
