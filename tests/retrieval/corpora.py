"""Corpora and indexes made for a test, and servers over them as child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rollbox.retrieval.index.build import BuildOptions, build_index
from rollbox.retrieval.index.manifest import Manifest

COMMAND = [sys.executable, "-m", "rollbox.cli", "retriever"]


def records(count: int) -> list[dict[str, Any]]:
    """Each has a word that no other has: `word17`."""
    return [{"id": f"p{i}", "contents": f'"Title {i}"\nPassage word{i} of the corpus.'} for i in range(count)]


def write_lines(path: Path, items: Iterable[Any]) -> Path:
    path.write_text("".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in items))
    return path


def build(corpus: Path, out: Path, **options: Any) -> Manifest:
    return build_index(BuildOptions([str(corpus)], out, "rollbox retriever index …", **options), lambda state: None)


@contextmanager
def serving(index: Path | str, *arguments: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """The address of a server, which is ended by SIGTERM and must end well."""
    command = [*COMMAND, "serve", str(index), "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("retriever on http://"), line + process.communicate()[1]
        yield line.split()[-1]
    finally:
        process.terminate()
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said


def refused(index: Path | str, *arguments: str) -> str:
    """What a server says that does not start."""
    command = [*COMMAND, "serve", str(index), "--port", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr
