"""The build-once directory: atomic, and one builder at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rollbox.demo.model_cache import built_once, default_cache_dir

_BUILDER = """
import sys, time
from pathlib import Path
from rollbox.demo.model_cache import built_once

def build(directory):
    (directory / "one").write_text("1")
    time.sleep(0.3)
    (directory / "two").write_text("2")
    with (directory.parent / "builds.log").open("a") as log:
        log.write("built\\n")

assert (built_once(Path(sys.argv[1]), "thing", build) / "two").read_text() == "2"
"""


def test_processes_build_once(tmp_path: Path) -> None:
    builders = [subprocess.Popen([sys.executable, "-c", _BUILDER, str(tmp_path)]) for _ in range(3)]
    assert [builder.wait(timeout=60) for builder in builders] == [0, 0, 0]
    assert (tmp_path / "builds.log").read_text() == "built\n"


def test_a_failed_build_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        built_once(tmp_path, "thing", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["thing.lock"]
    assert built_once(tmp_path, "thing", lambda directory: None) == tmp_path / "thing"


def test_what_a_killed_builder_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "thing.partial-x").mkdir()
    built_once(tmp_path, "thing", lambda directory: None)
    assert not (tmp_path / "thing.partial-x").exists()


def test_default_directory_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("ROLLBOX_CACHE")
    assert default_cache_dir() == Path.home() / ".cache" / "rollbox"
