"""docs/sandbox.md lists what is tried, and what stops it, as the suite has it."""

from __future__ import annotations

from pathlib import Path

from .test_attacks import ATTACKS

DOCS = Path(__file__).parents[3] / "docs" / "sandbox.md"


def test_the_table_is_the_suite() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("### What was tried\n")[2].partition("\n## ")[0]
    rows = [tuple(line.strip("| ").split(" | ")) for line in section.splitlines() if line.startswith("| ")]
    assert rows[0] == ("tried", "what stops it")
    assert rows[1:] == [(attack.name, attack.stopped_by) for attack in ATTACKS]
