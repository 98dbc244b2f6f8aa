"""What the CPU server and its actors are called, apart from the classes so that the plugin can be loaded first."""

from __future__ import annotations

from typing import Any

ROLLOUT = "rollbox_cpu"
"""Value of `actor_rollout_ref.rollout.name`."""


def server_name(replica_rank: int, suffix: str = "") -> str:
    """The name of a replica's actor in Ray."""
    return f"{ROLLOUT}_server_{replica_rank}{suffix}"


def load_replica() -> type[Any]:
    """For verl's registry, which wants a loader."""
    from .replica import CpuReplica

    return CpuReplica
