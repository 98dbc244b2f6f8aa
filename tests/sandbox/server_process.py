"""A sandbox server as a child process, and what can be seen of processes from the host."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class ServerProcess:
    """A running server. Its end follows this process's: it holds the other end of its lifeline."""

    def __init__(self, process: subprocess.Popen[str], port: int, lifeline: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self._lifeline = lifeline

    def let_go(self) -> None:
        """Close the lifeline, as the end of this process would."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


@contextmanager
def serving(
    *arguments: str, before: tuple[str, ...] = (), env: dict[str, str] | None = None, python: str = sys.executable
) -> Iterator[ServerProcess]:
    """Start a server on a free port; end it by its lifeline. `before` is a command that runs it."""
    lifeline_read, lifeline = os.pipe()
    ready_read, ready_write = os.pipe()
    command = [*before, python, "-m", "rollbox.sandbox.serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        [*command, "--ready-fd", str(ready_write), "--lifeline-fd", str(lifeline_read)],
        pass_fds=(ready_write, lifeline_read),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    os.close(lifeline_read)
    os.close(ready_write)
    try:
        with open(ready_read) as ready:
            line = ready.readline()
        server = ServerProcess(process, int(line or 0), lifeline)
        assert line, process.communicate()[1]
        yield server
    finally:
        server.let_go()
        process.communicate(timeout=30)


def processes_with(marker: str) -> list[int]:
    """Host processes whose command line holds `marker`."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and marker.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it ended in the meantime
            continue
    return found


def below(pid: int) -> dict[int, str]:
    """All processes below one, and their command lines. Those that end meanwhile may have none."""
    found: dict[int, str] = {}
    for task in _list(Path(f"/proc/{pid}/task")):
        for child in map(int, _text(task / "children").split()):
            found |= {child: _text(Path(f"/proc/{child}/cmdline")), **below(child)}
    return found


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    """Wait for a state of the host that no event announces."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.02)
