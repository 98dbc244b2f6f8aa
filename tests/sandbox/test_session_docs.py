"""The worked example of docs/sessions.md runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rollbox.sandbox.client import Sandbox

DOCS = Path(__file__).parents[2] / "docs" / "sessions.md"


async def test_the_tree_of_rollouts(sandbox: Sandbox) -> None:
    found = re.search(r"<!-- a test runs this -->\n```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found
    names: dict[str, Any] = {}
    exec(compile(found[1], str(DOCS), "exec"), names)
    assert await names["search"](sandbox) == "\"56 by ['*7', '+10', '+25']\""
