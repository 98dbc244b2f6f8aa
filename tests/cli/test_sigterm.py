"""SIGTERM, as schedulers send it, ends every command in order: nothing that it started or made for itself stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rollbox.rollout.report.files import TRAJECTORIES

from ..rewards.trajectories import trajectory
from ..sandbox.server_process import below, processes_with, until

ENDLESS_SCORE = """
from pathlib import Path
from rollbox.rewards.registry import Fixture, score
from rollbox.rewards.sandbox_access import scoring_sandbox
from rollbox.schemas.run import RunRequest

@score("test/endless", fixtures=[Fixture("a", "a", 1.0), Fixture("b", "a", 0.0)])
async def endless(solution_str, ground_truth, extra_info):
    sandbox = await scoring_sandbox()
    await sandbox.run(RunRequest(code="1"))
    Path({started!r}).touch()
    await sandbox.run(RunRequest(code="import time; time.sleep(600)", limits={{"wall_s": 600}}))
    return 1.0
"""
QUESTION = '{"question": "What is 1?", "answer": "1", "data_source": "test/endless"}\n'
TOOLS = """
tools: [{class_name: rollbox.tools.python_executor.PythonExecutorTool, config: {type: native, timeout_sec: 600}}]
"""
REWARDS = "modules: [scores.py]\nparts: {outcome: , format: {weight: 0.1}}\n"


@dataclass
class Place:
    """A command's folders. Attributes: started: a score has begun. embeds: a server that never answers is asked."""

    folder: Path
    temporary: Path
    model: Path
    url: str
    embeds: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def started(self) -> Path:
        return self.folder / "started"

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def rewards(self) -> str:
        self.file("scores.py", ENDLESS_SCORE.format(started=str(self.started)))
        return self.file("rewards.yaml", REWARDS)

    def teaches(self) -> bool:
        return any(self.folder.glob("cache/*.partial-*"))

    def scores(self) -> bool:
        return self.started.exists()

    def rolls_out(self) -> bool:
        lines = self.folder / "out" / TRAJECTORIES
        return lines.exists() and lines.stat().st_size > 0

    def writes(self) -> bool:
        return any(self.folder.glob("out/.*"))

    def indexes(self) -> bool:
        return (self.folder / "index" / "bm25" / "meta.json").exists()

    def servers(self) -> list[int]:
        return processes_with(f"--users-socket\0{self.temporary}")


Made = tuple[list[str], Callable[[], bool]]


def demo_teaching(place: Place) -> Made:
    return ["demo", "--out", f"{place.folder}/out"], place.teaches


def demo_rolling_out(place: Place) -> Made:
    data = place.file("data.jsonl", '{"question": "What is 1?", "answer": "1"}\n' * 4000)
    options = ["--model", str(place.model), "--data", data, "--out", f"{place.folder}/out", "--max-tokens", "8"]
    return ["demo", *options, "--concurrency", "2"], place.rolls_out


def arithmetic(place: Place) -> Made:
    return ["data", "arithmetic", "--out", f"{place.folder}/out"], place.teaches


def data_set(place: Place) -> Made:
    rows = place.file(
        "q.jsonl", "".join(f'{{"question": "What is {i}?", "answer": "#### {i}"}}\n' for i in range(200_000))
    )
    return ["data", "gsm8k", "--train", rows, "--test", rows, "--out", f"{place.folder}/out"], place.writes


def index(place: Place) -> Made:
    corpus = place.file("c.jsonl", "".join(f'{{"id": "{i}", "contents": "t\\nword {i}"}}\n' for i in range(100_000)))
    return ["retriever", "index", corpus, "--out", f"{place.folder}/index", "--commit-every", "50"], place.indexes


def dense_index(place: Place) -> Made:
    corpus = place.file("c.jsonl", '{"id": "1", "contents": "t\\nword"}\n')
    options = ["--dense", "m", "--dense-url", f"{place.url}/v1/embeddings"]
    return ["retriever", "index", corpus, "--out", f"{place.folder}/index", *options], place.embeds.is_set


def dry_run(place: Place) -> Made:
    data, responses = place.file("data.jsonl", QUESTION), place.file("responses.jsonl", '{"response": "1"}\n')
    options = ["--responses", responses, "--rewards", place.rewards(), "--histogram", f"{place.folder}/r.png"]
    return ["reward", "dry-run", data, *options], place.scores


def verify(place: Place) -> Made:
    place.rewards()
    return ["reward", "verify", "--module", f"{place.folder}/scores.py"], place.scores


def rescore(place: Place) -> Made:
    made = trajectory("1")
    made.sample = made.sample.model_copy(update={"data_source": "test/endless"})
    place.file(TRAJECTORIES, made.model_dump_json() + "\n")
    return ["rescore", str(place.folder), "--rewards", place.rewards()], place.scores


def tools_check(place: Place) -> Made:
    tools = place.file("tools.yaml", TOOLS)
    call = 'python={"code": "import time; time.sleep(600)"}'
    return ["tools", "check", tools, "--timeout-s", "600", "--call", call], lambda: bool(place.servers())


COMMANDS = [
    demo_teaching,
    demo_rolling_out,
    arithmetic,
    data_set,
    index,
    dense_index,
    dry_run,
    verify,
    rescore,
    tools_check,
]


@pytest.fixture
async def place(tmp_path: Path, random_model_dir: Path) -> AsyncIterator[Place]:
    ends = asyncio.Event()

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.embeds.set()
        await ends.wait()
        writer.close()

    server = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with tempfile.TemporaryDirectory() as temporary:  # a socket's path must be short
        made = Place(tmp_path, Path(temporary), random_model_dir, url)
        async with server:
            yield made
            ends.set()


@pytest.mark.parametrize("make", COMMANDS)
async def test_a_command_ends_in_order(make: Callable[[Place], Made], place: Place) -> None:
    arguments, in_the_middle = make(place)
    environment = {"TMPDIR": str(place.temporary), "ROLLBOX_CACHE": str(place.folder / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbox.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        await until(lambda: in_the_middle() or process.poll() is not None, within_s=100)
        children = [pid for root in (process.pid, *place.servers()) for pid in (root, *below(root))]
        process.send_signal(signal.SIGTERM)
        said, _ = await asyncio.to_thread(process.communicate, timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143, said
    assert "Traceback" not in said
    assert not [pid for pid in children if _runs(pid)]
    assert not place.teaches()
    assert not [*place.folder.glob("**/.*.unfinished"), *place.folder.glob(".rescored.*")]
    assert [path.name for path in place.temporary.iterdir()] in ([], [f"rollbox-{os.geteuid()}"])


def _runs(pid: int) -> bool:
    """Not a zombie either, as which a server stays that is nobody's child where the machine has no init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
