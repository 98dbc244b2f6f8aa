"""Files that programs of one trajectory leave for each other, although each runs in a fresh jail."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import PurePosixPath

MAX_NAMES = 200
_MAX_NAME_CHARS = 200
_MAX_CODE_CHARS = 100_000  # a few milliseconds, in which the event loop stands still
_WORK_DIR = "/workspace/"


class KeptFiles:
    """The work dir of a trajectory, as far as its programs name it.

    The sandbox sends back the files that it is asked for by name. The names asked for are the string constants of all
    programs so far that look like one (`"out.csv"`, `"data/a.npy"`).

    Args:
        files: work-dir path -> base64 content, from the data set.
        max_bytes: of all contents; a program's files are dropped when they would make it more.
    """

    def __init__(self, files: dict[str, str], max_bytes: int) -> None:
        self.files = dict(files)
        self.names = set(files)
        self._max_bytes = max_bytes

    def note(self, code: str) -> None:
        """Remember the file names in a program that is about to be run."""
        for name in names_in(code):
            if len(self.names) >= MAX_NAMES:
                return
            self.names.add(name)

    def update(self, fetched: dict[str, str]) -> bool:
        """Take over what a run left. Of a file that was removed nothing is left. False: it was too much."""
        if sum(map(len, fetched.values())) * 3 // 4 > self._max_bytes:
            return False
        self.files = dict(fetched)
        return True


def names_in(code: str) -> Iterator[str]:
    """String constants that look like paths of files in the work dir."""
    if len(code) > _MAX_CODE_CHARS:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the model's escapes, which are none of ours
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.removeprefix(_WORK_DIR).removeprefix("./")
            if _looks_like_file(name):
                yield name


def _looks_like_file(name: str) -> bool:
    if not 0 < len(name) <= _MAX_NAME_CHARS or not name.isprintable() or any(char in '\\*?"<>|{}%:' for char in name):
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and 1 < len(path.suffix) <= 10 and " " not in path.suffix
