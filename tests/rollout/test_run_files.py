"""The directory of a run: one writer, nothing thrown away before a run can begin, faults of the disk said plainly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollbox.rollout.report.files import RunFiles
from rollbox.schemas.errors import ConfigError, InfraError
from rollbox.schemas.trajectory import Rewards, Sample, StopReason, Trajectory

SETTINGS = {"n": 1, "limits": {"max_turns": 8, "dispatch": {"keep": "both"}}}
SERVED = {"model": "a"}


def trajectory(name: str = "q.0", **fields: Any) -> Trajectory:
    sample = Sample(sample_id="q", data_source="x", messages=[{"role": "user", "content": "?"}])
    messages = [*sample.messages, {"role": "assistant", "content": "!"}]
    given = {"prompt_ids": [1], "stop_reason": StopReason.ANSWERED, "rewards": Rewards(total=1.0, correct=True)}
    return Trajectory(trajectory_id=name, sample=sample, messages=messages, **{**given, **fields})


def write_run(directory: Path, last: Trajectory | None = None) -> None:
    with RunFiles(directory, SETTINGS) as files:
        files.begin(SERVED)
        files.add(last or trajectory())
        files.finish(1.0, "a run", lambda ids: str(ids))


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_second_run_in_the_same_directory_is_refused_while_the_first_goes_on(tmp_path: Path) -> None:
    with RunFiles(tmp_path, SETTINGS) as files:
        files.begin(SERVED)
        for restart in (False, True):
            with pytest.raises(ConfigError, match=f"another process writes its run into {tmp_path}"):
                RunFiles(tmp_path, SETTINGS, restart=restart).__enter__()
        files.add(trajectory())
    with RunFiles(tmp_path, SETTINGS) as after:
        assert after.done == {"q.0"}


def test_a_restart_that_cannot_begin_throws_nothing_away(tmp_path: Path) -> None:
    write_run(tmp_path)
    before = content(tmp_path)
    with RunFiles(tmp_path, {"n": 2}, restart=True):
        pass  # as where the model cannot be loaded
    assert content(tmp_path) == before


def test_a_restart_leaves_no_file_of_the_earlier_run(tmp_path: Path) -> None:
    write_run(tmp_path)
    with RunFiles(tmp_path, SETTINGS, restart=True) as files:
        files.begin(SERVED)
        assert files.done == set()
    assert sorted(content(tmp_path)) == ["failures.jsonl", "run.json", "trajectories.jsonl"]
    assert content(tmp_path)["trajectories.jsonl"] == b""


def test_what_never_began_is_no_other_run(tmp_path: Path) -> None:
    with RunFiles(tmp_path, {"n": 7}):
        pass
    with RunFiles(tmp_path, {"n": 7}) as files:
        files.begin({"model": "typo"})
    write_run(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text()) == {**SETTINGS, "served": SERVED}


def test_each_difference_is_named_by_itself(tmp_path: Path) -> None:
    write_run(tmp_path)
    other = {"limits": {"max_turns": 3, "dispatch": {"keep": "both"}}, "rewards": "abc"}
    with pytest.raises(ConfigError) as caught:
        RunFiles(tmp_path, other).__enter__()
    said = str(caught.value)
    assert "(n was 1, now None; limits.max_turns was 8, now 3; rewards was None, now 'abc')" in said
    assert "--restart" in said


def test_another_model_of_the_same_name_is_not_gone_on_with(tmp_path: Path) -> None:
    write_run(tmp_path)
    before = content(tmp_path)
    with RunFiles(tmp_path, SETTINGS) as files, pytest.raises(ConfigError, match="model was 'a', now 'b'"):
        files.begin({"model": "b"})
    assert content(tmp_path) == before


@pytest.mark.parametrize("place", ["file", "file/below", "proc"])
def test_a_directory_that_cannot_be_used_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    directory = Path("/proc/rollbox") if place == "proc" else tmp_path / place
    with pytest.raises(ConfigError, match=f"out: {directory} cannot be used: "):
        RunFiles(directory, SETTINGS).__enter__()
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["trajectories.jsonl", "failures.jsonl"])
def test_a_full_disk_stops_the_run_with_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    last = trajectory(infra_failed=name == "failures.jsonl", rewards=None)
    with pytest.raises(InfraError, match="cannot be written: No space left on device"):
        write_run(tmp_path, last)


def test_a_full_disk_at_the_end_keeps_the_trajectories(tmp_path: Path) -> None:
    (tmp_path / "summary.json").symlink_to("/dev/full")
    with pytest.raises(InfraError, match=r"No space left on device; what is in the files stays"):
        write_run(tmp_path)
    with RunFiles(tmp_path, SETTINGS) as files:
        assert files.done == {"q.0"}
