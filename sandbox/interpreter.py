"""The Python that programs run on, and the folders that the jail must show for it."""

from __future__ import annotations

import glob
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from .jail import policy


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python executable and the host folders it needs, none of them inside another."""

    executable: str
    binds: tuple[str, ...]

    @classmethod
    def current(cls) -> Interpreter:
        """The interpreter of this process, with its virtual environment."""
        wanted = [*policy.READ_ONLY, sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix]
        wanted += [path for pattern in policy.READ_ONLY_IF_PRESENT for path in glob.glob(pattern)]
        wanted += [path for path in policy.SYSTEM_DIRS if os.path.isdir(path) and not os.path.islink(path)]
        # A venv's interpreter is a link, and its target need not lie in a prefix.
        wanted.append(str(Path(sys.executable).resolve().parent))
        return cls(sys.executable, _outermost(wanted))


def _outermost(paths: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(Path(path).is_relative_to(above) for above in kept):
            kept.append(path)
    return tuple(kept)
