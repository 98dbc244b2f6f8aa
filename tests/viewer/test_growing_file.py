"""Reading a file that another process writes: nothing twice, nothing lost, nothing half."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbox.viewer import growing_file
from rollbox.viewer.growing_file import GrowingFile, Line, read_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.touch()
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def taken(file: GrowingFile) -> list[tuple[int, bytes | None]]:
    return [(line.number, line.data) for line in file.lines() if line.ended]


def test_lines_come_once_with_their_numbers_and_places(path: Path) -> None:
    file = GrowingFile(path)
    append(path, b"one\n\ntwo\n")
    lines = list(file.lines())
    assert lines == [Line(1, 0, 3, b"one"), Line(2, 4, 0, b""), Line(3, 5, 3, b"two")]
    assert [read_bytes(path, line.offset, line.length) for line in lines] == [b"one", b"", b"two"]
    assert taken(file) == []
    append(path, b"three\n")
    assert taken(file) == [(4, b"three")]


def test_a_half_written_line_waits_for_its_end(path: Path) -> None:
    file = GrowingFile(path)
    append(path, b"one\nhal")
    assert [(line.data, line.ended) for line in file.lines()] == [(b"one", True), (b"hal", False)]
    append(path, b"f\nnext\n")
    assert taken(file) == [(2, b"half"), (3, b"next")]


@pytest.mark.parametrize("newline", [b"\n", b""])
def test_a_last_line_that_was_taken_is_not_read_again_when_its_newline_comes(path: Path, newline: bytes) -> None:
    file = GrowingFile(path)
    append(path, b"whole")
    (line,) = file.lines()
    file.take(line)
    append(path, newline)
    assert list(file.lines()) == []
    if newline:
        append(path, b"next\n")
        assert taken(file) == [(2, b"next")]


@pytest.mark.parametrize("new", [b"", b"one\n", b"other\nlines\n", b"One\ntwo\nthree\n"])
def test_another_file_in_its_place_is_noticed(path: Path, new: bytes) -> None:
    file = GrowingFile(path)
    append(path, b"one\ntwo\n")
    taken(file)
    append(path, b"three\n")
    assert not file.was_replaced()
    path.write_bytes(new)
    assert file.was_replaced()


def test_a_file_of_the_same_beginning_is_another_when_it_was_moved_there(path: Path) -> None:
    file = GrowingFile(path)
    append(path, b"one\n")
    taken(file)
    other = path.with_name("other")
    other.write_bytes(b"one\ntwo\n")
    other.replace(path)
    assert file.was_replaced()


def test_a_line_that_is_too_long_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_file, "MAX_LINE_BYTES", 10)
    file = GrowingFile(path)
    append(path, b"x" * 35 + b"\n" + b"y" * 10 + b"\n" + b"z" * 50)
    lines = list(file.lines())
    assert [(line.length, line.data, line.ended) for line in lines] == [
        (35, None, True),
        (10, b"y" * 10, True),
        (50, None, False),
    ]
    append(path, b"\nlast\n")
    assert taken(file) == [(3, None), (4, b"last")]
