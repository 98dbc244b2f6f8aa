"""Every attack gets what it may and no more; the next run on the same slot is clean, and the server well."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.schemas.run import RunLimits, RunRequest

from ..server_process import processes_with, until
from ..targets import Target
from . import exhaustion, files, kernel, network, processes, results
from .attack import Attack
from .conftest import probed

ATTACKS: tuple[Attack, ...] = (
    *exhaustion.ATTACKS,
    *files.ATTACKS,
    *processes.ATTACKS,
    *results.ATTACKS,
    *kernel.ATTACKS,
    *network.ATTACKS,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
async def test_attack(attack: Attack, target: Target, sandbox: Sandbox, clean: dict[str, Any]) -> None:
    marker = f"marker-{uuid.uuid4()}"
    if attack.before is not None:
        await sandbox.run(RunRequest(code=attack.before, args=[marker], limits=RunLimits(**attack.limits)))
    result = await sandbox.run(attack.request(marker, target.port))
    attack.got(result)
    pool = (await sandbox.info())["pool"]
    # Zygotes have one slot more than can run, and hand them out in turn: so each of them is looked at.
    for _ in range(1 if pool["kind"] == "process" else pool["slots"] + 1):
        assert await probed(sandbox) == clean
    pool = (await sandbox.info())["pool"]
    assert (pool["running"], pool["waiting"]) == (0, 0)
    await until(lambda: processes_with(marker) == [])


def test_names_are_unique() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
