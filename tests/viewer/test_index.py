"""The index keeps up with a run that goes on, and bears whatever happens to its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbox.schemas.trajectory import Trajectory
from rollbox.viewer import index as index_module
from rollbox.viewer import lookup
from rollbox.viewer.index import TrajectoryIndex
from rollbox.viewer.query import ListQuery
from rollbox.viewer.rows import Row

from .made_trajectories import UNREADABLE, as_line, odd, ordinary, trajectory
from .page_client import viewing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trajectories.jsonl"
    path.touch()
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def rows(index: TrajectoryIndex) -> list[Row]:
    await index.refresh(wait_s=60)
    with index.connection() as connection:
        return lookup.page(connection, ListQuery())


async def test_trajectories_appear_as_they_are_written(path: Path) -> None:
    written = [as_line(made) for made in ordinary(3)]
    async with TrajectoryIndex(path) as index:
        assert await rows(index) == []
        append(path, written[0])
        assert [row.key for row in await rows(index)] == ["1"]
        append(path, written[1] + written[2][:100])
        assert [row.key for row in await rows(index)] == ["1", "2"]
        assert index.state.half_bytes == 100
        assert not index.state.behind
        append(path, written[2][100:])
        assert [row.problem for row in await rows(index)] == [None] * 3
        assert index.state.half_bytes == 0


async def test_a_last_line_without_newline_is_shown_when_it_is_whole(path: Path) -> None:
    append(path, as_line(trajectory([("a", [])])).rstrip())
    async with TrajectoryIndex(path) as index:
        assert [row.key for row in await rows(index)] == ["1"]
        append(path, b"\n" + as_line(trajectory([("b", [])])))
        assert [(row.key, row.answer) for row in await rows(index)] == [("1", "a"), ("2", "b")]


async def test_lines_of_another_schema_are_rows_with_their_number_and_reason(path: Path) -> None:
    newer = as_line(trajectory([("a", [])]))[:-2] + b', "from_the_future": 1}\n'
    for line in (as_line(trajectory([("a", [])])), newer, *(line + b"\n" for line in UNREADABLE)):
        append(path, line)
    async with TrajectoryIndex(path) as index:
        first, second, *others = await rows(index)
        assert first.problem is None
        assert (second.key, second.outcome) == ("2", "unreadable")
        assert second.problem is not None
        assert "from_the_future: Extra inputs are not permitted" in second.problem
        assert [row.key for row in others] == [str(line) for line in range(3, 3 + len(UNREADABLE))]
        assert all(row.problem for row in others)


async def test_a_run_that_is_started_anew_replaces_the_old_one(path: Path) -> None:
    append(path, b"".join(as_line(made) for made in ordinary(5, seed=1)))
    async with TrajectoryIndex(path) as index:
        assert len(await rows(index)) == 5
        replace(path, as_line(trajectory([("new", [])], trajectory_id="new")))
        assert [row.trajectory_id for row in await rows(index)] == ["new"]


async def test_a_file_that_is_gone_leaves_what_was_read(path: Path) -> None:
    append(path, as_line(trajectory([("a", [])])))
    async with TrajectoryIndex(path) as index:
        assert len(await rows(index)) == 1
        remove(path)
        assert len(await rows(index)) == 1
        assert index.state.problem is not None
        assert "No such file" in index.state.problem
        append(path, as_line(trajectory([("b", [])], trajectory_id="b")))
        assert [row.answer for row in await rows(index)] == ["b"]
        assert index.state.problem is None


async def test_reading_in_many_steps_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_STEP_S", 0.0)
    append(path, b"".join(as_line(made) for made in ordinary(200)))
    append(path, as_line(trajectory([("last", [])])).rstrip())
    async with TrajectoryIndex(path) as index:
        await index.refresh(wait_s=60)
        with index.connection() as connection:
            assert lookup.overview(connection).lines == 201


async def test_a_failed_step_is_taken_back_and_done_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, b"".join(as_line(made) for made in ordinary(20)))
    real = TrajectoryIndex._insert

    def failing(self: TrajectoryIndex, entry: index_module.Entry) -> None:
        real(self, entry)
        if entry.row.id == 10:
            raise OSError("no space left")

    async with TrajectoryIndex(path) as index:
        monkeypatch.setattr(TrajectoryIndex, "_insert", failing)
        await index.refresh(wait_s=60)
        monkeypatch.setattr(TrajectoryIndex, "_insert", real)
        assert len(await rows(index)) == 20


async def test_the_index_leaves_no_files(path: Path) -> None:
    async with TrajectoryIndex(path) as index:
        directory = index._database.parent
        assert directory.is_dir()
    assert not directory.exists()


@pytest.mark.parametrize("made", odd())
def test_odd_cases_are_trajectories(made: Trajectory) -> None:
    assert Trajectory.model_validate_json(as_line(made)) == made


async def test_those_that_failed_are_listed_behind_the_others(path: Path, tmp_path: Path) -> None:
    failures = tmp_path / "failures.jsonl"
    async with TrajectoryIndex(path, failures) as index:
        assert await rows(index) == []
        append(failures, as_line(trajectory([], stop_reason="infra", infra_failed=True, rewards=None)))
        append(path, as_line(trajectory([("a", [])])))
        assert [(row.key, row.outcome) for row in await rows(index)] == [("1", "right"), ("f1", "infra")]
        # The next part of the run begins with an empty file of failures.
        replace(failures, b"")
        assert [row.key for row in await rows(index)] == ["1"]
        append(failures, as_line(trajectory([("again", [])], infra_failed=True))[:50])
        assert [row.key for row in await rows(index)] == ["1"]
        assert index.state.half_bytes == 50
        remove(failures)
        assert [row.key for row in await rows(index)] == ["1"]
        assert (index.state.problem, index.state.half_bytes) == (None, 0)


def test_a_failure_has_pages_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "trajectories.jsonl").write_bytes(as_line(trajectory([("fine", [])])))
    failed = trajectory([("half", [])], stop_reason="deadline", infra_failed=True, rewards=None, error="too slow")
    (tmp_path / "failures.jsonl").write_bytes(as_line(failed))
    with viewing(tmp_path) as viewer:
        assert 'href="/t/f1?outcome=infra"' in viewer.get_whole("/?outcome=infra").text
        text = viewer.get("/t/f1").text
        assert "<b>deadline:</b> too slow" in text
        assert 'rel="prev" href="/t/1?"' in text
        assert Trajectory.model_validate_json(viewer.get("/t/f1/raw").text) == failed
        assert viewer.get("/t/f1/tokens").status == 200
        assert '<mark class="a">fine</mark>' in viewer.get("/diff?a=1&b=f1").text
