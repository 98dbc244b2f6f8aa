"""Building an index: killed and gone on with, with bad lines, in the wrong place, twice at a time."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import resource
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from rollbox.cli.dense_index import add_dense, dense_request
from rollbox.retrieval.index import build as build_module
from rollbox.retrieval.index.journal import Position
from rollbox.retrieval.index.lock import sole_builder
from rollbox.retrieval.index.manifest import BAD_LINES, BUILDING, MANIFEST, PROGRESS
from rollbox.retrieval.index.opened import OpenedIndex, open_index
from rollbox.retrieval.passages import Passage
from rollbox.schemas.errors import ConfigError

from .corpora import COMMAND, build, records, write_lines


def rollbox_index(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "index", *arguments], capture_output=True, text=True, timeout=100, check=False)


def test_what_went_in_comes_out(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(2500))
    manifest = build(corpus, tmp_path / "index", commit_every=700)
    assert (manifest.passages, manifest.bad_records) == (2500, 0)
    index = open_index(tmp_path / "index")
    passages = list(index.bm25.passages())
    assert passages == [Passage(f"p{i}", f"Title {i}", f"Passage word{i} of the corpus.") for i in range(2500)]
    rows = [2499, 0, 7, 7, 1234]
    assert index.bm25.passages_at(rows) == [passages[row] for row in rows]
    assert index.bm25.passages_at([]) == []
    for row in (-1, 2500):
        with pytest.raises(IndexError):
            index.bm25.passages_at([0, row])
    (hit,) = index.bm25.search("word1234", 3)
    assert (hit.id, hit.contents) == ("p1234", '"Title 1234"\nPassage word1234 of the corpus.')
    assert (index.state, index.corpus) == ("current", "unchanged")
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == [BAD_LINES, "bm25", MANIFEST]


def test_others_may_read_it(tmp_path: Path) -> None:
    build(write_lines(tmp_path / "c.jsonl", records(3)), tmp_path / "index")
    assert all(path.stat().st_mode & 0o004 for path in (tmp_path / "index" / "bm25").iterdir())


@pytest.mark.parametrize("packed", [False, True])
def test_a_build_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(tmp_path: Path, packed: bool) -> None:
    items: list[object] = list(records(5_000))
    bad_lines = list(range(37, 5_000, 300))
    for line in bad_lines:
        items[line] = "no passage"
    first = write_lines(tmp_path / "a.jsonl", items[:3000])
    second = write_lines(tmp_path / "b.jsonl", items[3000:])
    if packed:
        first.with_suffix(".jsonl.gz").write_bytes(gzip.compress(first.read_bytes()))
        first.unlink()
    out = tmp_path / "index"
    command = [*COMMAND, "index", str(tmp_path), "--out", str(out), "--commit-every", "100"]
    kills = 0
    while True:
        commits = _commits(out)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and (_commits(out) < commits + 8 or kills == 4):
                time.sleep(0.002)
            process.kill()
        if process.returncode != -signal.SIGKILL:
            break
        kills += 1
        with pytest.raises(ConfigError, match="not finished; go on with: rollbox retriever index"):
            open_index(out)
    assert (process.returncode, kills) == (0, 4)
    index = open_index(out)
    good = [i for i in range(5_000) if i not in bad_lines]
    assert [passage.id for passage in index.bm25.passages()] == [f"p{i}" for i in good]
    assert index.manifest.passages == len(good)
    noted = [json.loads(line) for line in (out / BAD_LINES).read_text().splitlines()]
    assert [note["line"] + 3000 * note["file"].endswith("b.jsonl") - 1 for note in noted] == bad_lines
    assert index.manifest.bad_records == len(noted)
    assert second.exists()


def _commits(out: Path) -> int:
    try:
        return len((out / PROGRESS).read_bytes().split())
    except FileNotFoundError:
        return 0


def test_a_crash_between_the_note_and_the_commit_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", [*records(500), "bad"])
    real = build_module.Journal.commit

    def crashes(self: build_module.Journal, position: Position) -> None:
        real(self, position)
        if position.rows == 300:
            raise RuntimeError("crash")

    monkeypatch.setattr(build_module.Journal, "commit", crashes)
    with pytest.raises(RuntimeError):
        build(corpus, tmp_path / "index", commit_every=100)
    monkeypatch.undo()
    with (tmp_path / "index" / PROGRESS).open("ab") as progress:
        progress.write(b'{"rows": 40')  # and a line that was cut off
    build(corpus, tmp_path / "index", commit_every=70)
    assert [passage.id for passage in open_index(tmp_path / "index").bm25.passages()] == [f"p{i}" for i in range(500)]
    assert len((tmp_path / "index" / BAD_LINES).read_text().splitlines()) == 1


def test_bad_lines_are_noted_by_file_and_line(tmp_path: Path) -> None:
    again = {"id": "p1", "contents": "again"}
    lines = [*records(3), "{", {"id": "x"}, again, *records(400)[3:], {"id": "p399", "text": "x"}]
    corpus = write_lines(tmp_path / "c.jsonl", lines)
    result = rollbox_index(str(corpus), "--out", str(tmp_path / "index"), "--commit-every", "100")
    assert result.returncode == 0, result.stderr
    assert "4 records were left out" in result.stdout
    notes = [json.loads(line) for line in (tmp_path / "index" / BAD_LINES).read_text().splitlines()]
    assert [note["line"] for note in notes] == [4, 5, 6, 404]
    assert {note["file"] for note in notes} == {str(corpus)}
    assert "not JSON" in notes[0]["reason"]
    assert notes[2]["reason"] == "id: 'p1' is the id of an earlier passage too"
    assert notes[3]["reason"] == "id: 'p399' is the id of an earlier passage too"
    assert open_index(tmp_path / "index").bm25.search("again", 3) == []


def test_too_many_bad_lines_stop_it_and_a_larger_share_goes_on(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", [*records(95), *["bad"] * 5])
    with pytest.raises(ConfigError, match=r"5 of 100 records are no passages, more than --max-bad 0\.01 allows"):
        build(corpus, tmp_path / "index")
    with pytest.raises(ConfigError, match="not finished"):
        open_index(tmp_path / "index")
    assert build(corpus, tmp_path / "index", max_bad=0.05).bad_records == 5
    assert len((tmp_path / "index" / BAD_LINES).read_text().splitlines()) == 5


def test_a_wrong_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ["bad"] * 30_000)
    with pytest.raises(ConfigError, match="10240 of 10240 records"):
        build(corpus, tmp_path / "index")


@pytest.mark.parametrize("limit_bytes", [0, 200, 1000, 10_000])
def test_a_full_disk_is_said_and_gone_on_from(tmp_path: Path, limit_bytes: int) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(3000))
    command = [*COMMAND, "index", str(corpus), "--out", str(tmp_path / "index"), "--commit-every", "1000"]

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))

    done = subprocess.run(command, preexec_fn=small_files, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: " in done.stderr
    assert "make room and start the same command again" in done.stderr
    assert "Traceback" not in done.stderr
    assert rollbox_index(*command[len(COMMAND) + 1 :]).returncode == 0
    assert _ids(open_index(tmp_path / "index")) == [f"p{i}" for i in range(3000)]


def _heed_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(20_000))
    command = [*COMMAND, "index", str(corpus), "--out", str(tmp_path / "index"), "--commit-every", "50"]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    # A shell's background job, which the tests may be, has SIGINT ignored.
    with subprocess.Popen(command, stdout=nothing, stderr=pipe, text=True, preexec_fn=_heed_sigint) as process:
        while process.poll() is None and _commits(tmp_path / "index") < 3:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=100)
    assert process.returncode not in (0, None)
    assert "stopped; the same command goes on" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_corpus_without_passages_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.jsonl").write_text(content)
    with pytest.raises(ConfigError, match="holds no passages"):
        build(tmp_path / "c.jsonl", tmp_path / "index")


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine" / "bm25").mkdir(parents=True)
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for restart in (False, True):
        with pytest.raises(ConfigError, match=r"something else in it \(thesis\.txt\)"):
            build(write_lines(tmp_path / "c.jsonl", records(3)), tmp_path / "mine", restart=restart)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_finished_index_is_not_touched_without_restart(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(3))
    build(corpus, tmp_path / "index")
    with pytest.raises(ConfigError, match="there already; --restart"):
        build(corpus, tmp_path / "index")
    write_lines(corpus, records(5))
    assert build(corpus, tmp_path / "index", restart=True).passages == 5
    assert _ids(open_index(tmp_path / "index")) == [f"p{i}" for i in range(5)]


def _ids(index: OpenedIndex) -> list[str]:
    return [passage.id for passage in index.bm25.passages()]


def test_another_corpus_does_not_go_on_with_it(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ["bad", *records(3)])
    other = write_lines(tmp_path / "d.jsonl", records(3))
    with pytest.raises(ConfigError, match="max-bad"):
        build(corpus, tmp_path / "index")
    with pytest.raises(ConfigError, match=r"was begun without .*d\.jsonl"):
        build(other, tmp_path / "index")
    write_lines(corpus, records(4))
    with pytest.raises(ConfigError, match=r"c\.jsonl has changed since it was begun"):
        build(corpus, tmp_path / "index")
    (tmp_path / "index" / BUILDING).write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        build(corpus, tmp_path / "index")
    assert build(corpus, tmp_path / "index", restart=True).passages == 4


def test_a_corpus_that_changes_meanwhile_makes_no_index(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(3000))
    states = []

    def grows(state: build_module.BuildState) -> None:
        states.append(state)
        with corpus.open("a") as file:
            file.write('{"id": "late", "contents": "late"}\n')

    with pytest.raises(ConfigError, match="since indexing began"):
        build_module.build_index(build_module.BuildOptions([str(corpus)], tmp_path / "index", "…"), grows)
    assert states[-1].rows > 0
    assert not (tmp_path / "index" / MANIFEST).exists()


def test_two_do_not_build_it_at_a_time(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(3000))
    seen: list[str] = []

    def report(state: build_module.BuildState) -> None:
        seen.append(rollbox_index(str(corpus), "--out", str(tmp_path / "index"), "--restart").stderr)

    options = build_module.BuildOptions([str(corpus)], tmp_path / "index", "…", commit_every=10_000)
    assert build_module.build_index(options, report).passages == 3000
    assert seen
    assert all("another process is building it" in text for text in seen)


@pytest.mark.parametrize("folders_lock", [True, False])
def test_nor_embed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders_lock: bool) -> None:
    corpus, out = write_lines(tmp_path / "c.jsonl", records(3)), tmp_path / "index"
    build(corpus, out)
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:  # as NFS has it
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(fd, operation)

    if not folders_lock:
        monkeypatch.setattr(fcntl, "flock", flock)
    request = dense_request({"model": "m", "url": "http://127.0.0.1:9/v1/embeddings"}, "flat")
    with sole_builder(out), pytest.raises(ConfigError, match="another process is building it"):
        add_dense([str(corpus)], out, request)
    with sole_builder(out):
        pass
    with pytest.raises(ConfigError, match="is there already"):
        build(corpus, out)
    assert build(corpus, out, restart=True).passages == 3


def test_where_nothing_can_be_locked_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ConfigError, match="cannot be locked against a second build: No locks available"):
        build(write_lines(tmp_path / "c.jsonl", records(3)), tmp_path / "index")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/not/there.jsonl", "--out", "OUT"), "there is no such file"),
        (("CORPUS", "--out", "/proc/x"), "cannot be made"),
        (("CORPUS", "--out", "CORPUS"), "cannot be made"),
        (("CORPUS", "--out", "OUT", "--threads", "4", "--memory-mb", "63"), "must be 16 for each of --threads"),
        (("CORPUS", "--out", "OUT", "--dense", "no-such/model"), "is not in the Hugging Face cache"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", records(3))
    places = {"OUT": str(tmp_path / "index"), "CORPUS": str(corpus)}
    result = rollbox_index(*(places.get(argument, argument) for argument in arguments))
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "index").exists()  # nothing is begun
