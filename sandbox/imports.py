"""Which zygote tier a program needs, from the imports in its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache

from .jail.tiers import BARE, MODULES

_NAMES = frozenset(name for names in MODULES.values() for name in names)
"""The packages that choose a tier."""
_MENTION = re.compile("|".join(sorted(_NAMES)))
# Parsing holds up the event loop, at some 10 µs a line. For a dotted name it takes the square of its parts: seconds for
# an `import a.a.a…` of 64 KB.
_PARSED_CHARS, _PARSED_DOTS = 65_536, 4096
_SEARCHED_CHARS = 1 << 20
_IMPORT_LINE = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)


def tier_of(code: str) -> str:
    """The first tier that covers the most of `code`'s imports; `bare` where none is needed."""
    if not _MENTION.search(code):
        return BARE
    return _cached_tier(code) if len(code) <= _PARSED_CHARS else _best(imported_names(code))


def tier_for(packages: Iterable[str]) -> str:
    """The first tier that covers the most of `packages`."""
    return _best(_NAMES.intersection(name.partition(".")[0] for name in packages))


# A contest program comes once for each of its tests.
@lru_cache(maxsize=256)
def _cached_tier(code: str) -> str:
    return _best(imported_names(code))


def imported_names(code: str) -> frozenset[str]:
    """The packages of any tier that a program imports, anywhere in it; none where it cannot be parsed.

    Of programs that would take long to parse only those at the start of a line are found, in the first MiB.
    """
    if len(code) > _PARSED_CHARS or code.count(".") > _PARSED_DOTS:
        return _NAMES.intersection(_IMPORT_LINE.findall(code[:_SEARCHED_CHARS]))
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()  # it fails at once, or is strange enough to take its time
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return _NAMES.intersection(name.partition(".")[0] for name in found)


def _best(needed: frozenset[str]) -> str:
    # max keeps the first of equals, and the tiers are in order of size.
    return max(MODULES, key=lambda tier: len(needed.intersection(MODULES[tier])))
