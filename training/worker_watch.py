"""Notices that an agent-loop worker has died, for whose trajectories verl's sampler would wait for ever.

verl's V1 trainer hands prompts to its workers without keeping the results of those calls; a worker that is killed (out
of memory, a crash in a library) leaves them `running`, and nothing else ever looks.
"""

from __future__ import annotations

import time

import ray.util

from ..schemas.errors import InfraError

# verl.experimental.agent_loop.AgentLoopManager names its workers so; an actor that died is no longer listed.
_PREFIX = "agent_loop_worker_"
_SECONDS_BETWEEN_LOOKS = 2.0


class WorkerWatch:
    """Which agent-loop workers were seen alive.

    Args:
        stalled_s: seconds in which nothing of what is running comes to an end, after which something is wrong even if
            every worker lives; None where trajectories have no deadline.
    """

    def __init__(self, stalled_s: float | None) -> None:
        self._stalled_s = stalled_s
        self._seen: set[str] = set()
        self._looked = -_SECONDS_BETWEEN_LOOKS
        self._state: object = None
        self._moved = time.monotonic()

    def begin(self) -> None:
        """The sampler starts to wait for a batch."""
        self._state, self._moved = None, time.monotonic()

    def check(self, state: object, running: int) -> None:
        """Look again, every two seconds at most.

        Args:
            state: equal to that of the last call as long as nothing has come to an end.
            running: prompts in work.

        Raises:
            InfraError: a worker seen before is gone, or nothing has moved for `stalled_s`.
        """
        now = time.monotonic()
        if state != self._state:
            self._state, self._moved = state, now
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked = now
        alive = {name for name in ray.util.list_named_actors() if name.startswith(_PREFIX)}
        if dead := self._seen - alive:
            raise InfraError(
                f"agent-loop worker {', '.join(sorted(dead))} died with prompts in work ({running} running in all); "
                "the run stops, and none of their trajectories is counted. Its last words are in Ray's logs "
                "(/tmp/ray/session_latest/logs); killed for memory is the usual cause. Start again with "
                "trainer.resume_mode=auto to go on from the last checkpoint"
            )
        self._seen |= alive
        if self._stalled_s is not None and running and now - self._moved > self._stalled_s:
            raise InfraError(
                f"{running} prompts are running and none has ended for {now - self._moved:.0f} s, longer than a "
                "trajectory may take (rollbox.trajectory_timeout_s) with a minute to spare: the inference server or a "
                "worker hangs; see the agent-loop workers' logs"
            )
