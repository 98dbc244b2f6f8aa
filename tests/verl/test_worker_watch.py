"""What the sampler takes for a dead worker, and for a batch that stands still."""

from __future__ import annotations

import pytest

from rollbox.schemas.errors import InfraError
from rollbox.training import worker_watch
from rollbox.training.worker_watch import WorkerWatch

pytestmark = pytest.mark.verl
LOOP, OTHER = "agent_loop_worker_0_ab", "agent_loop_worker_1_cd"


class Cluster:
    """The names that Ray lists, and the clock."""

    def __init__(self) -> None:
        self.names = [LOOP, OTHER, "reward_loop_worker_0"]
        self.now_s = 1000.0

    def list_named_actors(self) -> list[str]:
        return self.names

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(worker_watch.ray.util, "list_named_actors", made.list_named_actors)
    monkeypatch.setattr(worker_watch, "time", made)
    return made


def test_a_worker_that_is_gone_is_named(cluster: Cluster) -> None:
    watch = WorkerWatch(stalled_s=None)
    watch.begin()
    watch.check("a", 3)
    cluster.now_s += 10
    cluster.names.remove("reward_loop_worker_0")
    watch.check("a", 3)
    cluster.now_s += 10
    cluster.names.remove(OTHER)
    with pytest.raises(InfraError, match=rf"{OTHER} died with prompts in work \(3 running"):
        watch.check("a", 3)


def test_a_batch_that_stands_still_ends_the_run_where_trajectories_have_a_deadline(cluster: Cluster) -> None:
    bounded, free = WorkerWatch(stalled_s=100.0), WorkerWatch(stalled_s=None)
    for watch in (bounded, free):
        watch.begin()
        watch.check("a", 3)
    cluster.now_s += 90
    bounded.check("b", 2)  # something ended
    cluster.now_s += 90
    bounded.check("b", 2)
    cluster.now_s += 90
    with pytest.raises(InfraError, match="2 prompts are running and none has ended for 180 s"):
        bounded.check("b", 2)
    free.check("a", 3)


def test_nothing_that_runs_is_nothing_that_hangs(cluster: Cluster) -> None:
    watch = WorkerWatch(stalled_s=100.0)
    watch.begin()
    watch.check("a", 0)
    cluster.now_s += 1000
    watch.check("a", 0)
    watch.begin()
    watch.check("a", 1)
