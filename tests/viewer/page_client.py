"""A running `rollbox view`, and pages fetched from it as a browser would."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Page:
    status: int
    text: str
    headers: dict[str, str]

    def lines(self) -> list[int]:
        """The trajectories that a list shows, in its order."""
        return [int(number) for number in re.findall(r'class="open" href="/t/(\d+)', self.text)]


@dataclass(frozen=True)
class Viewer:
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, host: str | None = None, method: str = "GET") -> Page:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers={"Host": host} if host else {})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
            return Page(answer.status, text, {name.lower(): value for name, value in answer.getheaders()})
        finally:
            connection.close()

    def get_whole(self, path: str) -> Page:
        """The page once the file has been read to its end."""
        while 'http-equiv="refresh"' in (page := self.get(path)).text:
            pass
        return page


@contextmanager
def viewing(directory: Path, *options: str) -> Iterator[Viewer]:
    command = [sys.executable, "-m", "rollbox.cli", "view", str(directory), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline() + process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
            assert found, said + process.communicate(timeout=30)[1]
            yield Viewer(int(found[1]), process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                _, errors = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, errors
        assert not errors, errors
