"""verl's replay buffer of the V1 trainer, which also counts: metrics of tools, and what failed through our fault.

It is the one place of that trainer that sees every trajectory of a batch and whose metrics reach verl's loggers:
`trainer.v1.sampler.custom_sampler.path=pkg://rollbox.training.replay_buffer`.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils import tensordict_utils

from ..rollout.runner import InfraGuard
from .metrics import batch_metrics
from .trajectory_output import RECORD

_DEFAULT_MAX_SHARE = 0.3


class _Counting:
    """Mixed into verl's buffers, before them.

    A trajectory that failed through our fault is masked out of the loss already. Here it also leaves its group, so that
    its 0 is no part of the others' baseline, and verl's own metrics, as verl's padding does.

    Settings, in `trainer.v1.sampler.sampler_kwargs`: `max_infra_failed_share`.
    """

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """See verl's `ReplayBuffer.sample`.

        Raises:
            InfraError: more of the batch failed through our fault than `max_infra_failed_share`.
        """
        batch, metrics = super().sample(  # type: ignore[misc]
            global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
        )
        if partition_id == "val":
            return batch, metrics  # verl's validation reads reward_extra_info and drops these metrics
        fields = ["extra_fields", "rm_scores", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        extras = [_plain(value) for value in data["extra_fields"]]
        records = [extra.get(RECORD) for extra in extras]
        totals = [float(scores.sum()) for scores in data["rm_scores"]] if "rm_scores" in data else []
        lost = _lost_sessions(batch.keys, batch_size)
        self._guard(records, lost)
        _leave_group(batch, records)
        metrics.update(batch_metrics(records, [extra.get("reward_extra_info") or {} for extra in extras], totals, lost))
        return batch, metrics

    def _guard(self, records: list[dict[str, Any] | None], lost: int) -> None:
        share = self.sampler_kwargs.get("max_infra_failed_share", _DEFAULT_MAX_SHARE)  # type: ignore[attr-defined]
        failed = [record for record in records if record is not None and record["infra_failed"]]
        last = failed[-1]["error"] if failed else "sessions raised; see the agent-loop workers' log"
        InfraGuard(max_rate=share, min_finished=1).check(len(records) + lost, len(failed) + lost, last)


class RollboxReplayBuffer(_Counting, ReplayBuffer):
    """For `trainer.v1.trainer_mode=sync`."""


class RollboxReplayBufferAsync(_Counting, ReplayBufferAsync):
    """For `colocate_async` and `separate_async`."""


def _plain(value: Any) -> dict[str, Any]:
    value = getattr(value, "data", value)
    return value if isinstance(value, dict) else {}


def _lost_sessions(keys: list[str], batch_size: int) -> int:
    """How many trajectories never came, because their session raised.

    Args:
        keys: `{uid}_{session}_{index}` of those that came. batch_size: prompts that were asked for.
    """
    sessions: dict[str, set[str]] = {}
    for key in keys:
        uid, session, _ = key.rsplit("_", 2)
        sessions.setdefault(uid, set()).add(session)
    whole = max(len(found) for found in sessions.values())
    return whole * batch_size - sum(len(found) for found in sessions.values())


def _leave_group(batch: Any, records: list[dict[str, Any] | None]) -> None:
    failed = [i for i, record in enumerate(records) if record is not None and record["infra_failed"]]
    if not failed:
        return
    for i in failed:
        batch.tags[i]["is_padding"] = True
    alone = tensordict_utils.get_tensordict({"uid": [f"infra{uuid4().hex}" for _ in failed]})
    tq.kv_batch_put(keys=[batch.keys[i] for i in failed], partition_id=batch.partition_id, fields=alone)
