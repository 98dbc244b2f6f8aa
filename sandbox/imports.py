"""Which zygote tier a program needs, from the imports in its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache

from .jail.tiers import BARE, MODULES

KNOWN = frozenset(name for names in MODULES.values() for name in names)
"""The packages that choose a tier."""
_MENTION = re.compile("|".join(sorted(KNOWN)))
# Parsing holds up the event loop, at some 10 µs a line.
_PARSED_CHARS = 65_536
_IMPORT_LINE = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)


def tier_of(code: str) -> str:
    """The first tier that covers the most of `code`'s imports; `bare` where none is needed."""
    if not _MENTION.search(code):
        return BARE
    return _cached_tier(code) if len(code) <= _PARSED_CHARS else _best(frozenset(_IMPORT_LINE.findall(code)))


def tier_for(packages: Iterable[str]) -> str:
    """The first tier that covers the most of `packages`."""
    return _best(frozenset(name.partition(".")[0] for name in packages))


# A contest program comes once for each of its tests.
@lru_cache(maxsize=256)
def _cached_tier(code: str) -> str:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return BARE  # it fails at once, or is strange enough to take its time
    return _best(frozenset(imported_names(tree)))


def imported_names(tree: ast.AST) -> list[str]:
    """Top-level names of the absolute imports anywhere in a syntax tree."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return [name.partition(".")[0] for name in found]


def _best(imported: frozenset[str]) -> str:
    needed = imported & KNOWN
    # max keeps the first of equals, and the tiers are in order of size.
    return max(MODULES, key=lambda tier: len(needed.intersection(MODULES[tier])))
