"""verl's replay buffer of the V1 trainer, which also counts and chooses: metrics of tools, what failed through our
fault, and the trajectories that GRPO-RoC trains on.

It is the one place of that trainer that sees every trajectory of a batch and whose metrics reach verl's loggers:
`trainer.v1.sampler.custom_sampler.path=pkg://rollbox.training.replay_buffer`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils import tensordict_utils

from ..rewards.trajectory import rewards_of
from ..rollout.runner import InfraGuard
from .algorithms.states import tag_uids
from .batch_rows import RECORD, BatchRow, write_records
from .group_rewards import with_group_rewards
from .metrics import PREFIX, batch_metrics
from .resampling import resampled
from .settings import AGENT_LOOP, settings_of
from .worker_watch import WorkerWatch

_STALL_MARGIN_S = 60.0  # a trajectory at its deadline still has tools to release, and its score to get


class _Counting:
    """Mixed into verl's buffers, before them.

    A trajectory that failed through our fault is masked out of the loss already. Here it also leaves its group, so that
    its 0 is no part of the others' baseline, and verl's own metrics, as verl's padding does.

    Args:
        sampler_kwargs: `trainer.v1.sampler.sampler_kwargs`; its `rollbox` is the section of that name. verl keeps
            `algorithm.filter_groups` from a sampler that is not its own, so that comes here too, with
            `train_batch_size`.

    Raises:
        ConfigError: a key of the section is unknown or its value wrong, or its rewards file is.
    """

    def __init__(self, *args: Any, sampler_kwargs: Any, **kwargs: Any) -> None:
        given = sampler_kwargs or {}
        groups = given.get("filter_groups") or {}
        if groups.get("enable"):
            kwargs |= {
                "filter_groups_metric": groups["metric"],
                "train_batch_size": given["train_batch_size"],
                "gen_batch_size": 1,  # verl's own: an exact number of prompts is asked for anew
                "max_inflight_gen_batches": groups.get("max_inflight_gen_batches", 1),
            }
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)  # type: ignore[call-arg]
        self._settings = settings_of(given.get("rollbox"))
        file = self._settings.rewards.path
        self._rewards = None if file is None else rewards_of(file).config
        self.poll_interval = self._settings.sampler_poll_s
        # Other loops have no deadline, and a long answer may be all that is still running.
        bounded = given.get("agent_loop") == AGENT_LOOP
        self._watch = WorkerWatch(self._settings.trajectory_timeout_s + _STALL_MARGIN_S if bounded else None)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """See verl's `ReplayBuffer.sample`.

        Raises:
            InfraError: more of the batch failed through our fault than `max_infra_failed_share`, or a worker died.
        """
        self._watch.begin()
        batch, metrics = super().sample(  # type: ignore[misc]
            global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
        )
        if partition_id == "val":
            return batch, metrics  # verl's validation reads reward_extra_info and drops these metrics
        rows = _rows(batch)
        self._guard(rows, lost := _lost_sessions(batch.keys, batch_size))
        if self._rewards is not None and self._rewards.group_parts:
            rows = with_group_rewards(rows, self._rewards)
            _put_scores(batch, rows)
        metrics.update(batch_metrics(rows, lost))
        if self._settings.resample is not None:
            kept, chosen = resampled(rows, self._settings.resample, global_steps)
            metrics.update({f"{PREFIX}/{name}": value for name, value in chosen.items()})
            batch, rows = _only(batch, rows, kept)
        _leave_group(batch, trained := [row for row in rows if row.trained])
        if self._settings.state_groups:
            _tell_states(batch, trained)
        if self._settings.records_dir is not None:
            write_records(rows, Path(self._settings.records_dir), global_steps)
        return batch, metrics

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        running = len(self.running_keys[partition_id])  # type: ignore[attr-defined]
        self._watch.check((running, len(self.partitions[partition_id])), running)  # type: ignore[attr-defined]
        waited: float = super()._wait_for_next_poll(partition_id, last_debug_time)  # type: ignore[misc]
        return waited

    def _guard(self, rows: list[BatchRow], lost: int) -> None:
        failed = [row.record for row in rows if row.infra_failed]
        last = failed[-1]["error"] if failed and failed[-1] else "sessions raised; see the agent-loop workers' log"
        guard = InfraGuard(max_rate=self._settings.max_infra_failed_share, min_finished=1)
        guard.check(len(rows) + lost, len(failed) + lost, last)


class RollboxReplayBuffer(_Counting, ReplayBuffer):
    """For `trainer.v1.trainer_mode=sync`."""


class RollboxReplayBufferAsync(_Counting, ReplayBufferAsync):
    """For `colocate_async` and `separate_async`."""


def _rows(batch: Any) -> list[BatchRow]:
    fields = ["extra_fields", "rm_scores", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    extras = [_plain(value) for value in data["extra_fields"]]
    # With a reward model on the trainer's own GPUs there are no scores yet.
    scores = [row.tolist() for row in data["rm_scores"]] if "rm_scores" in data else [None] * len(extras)
    masks = [row.tolist() for row in data["response_mask"]]
    return [
        BatchRow(key, extra.get(RECORD), dict(extra.get("reward_extra_info") or {}), score, mask)
        for key, extra, score, mask in zip(batch.keys, extras, scores, masks, strict=True)
    ]


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


def _put_scores(batch: Any, rows: list[BatchRow]) -> None:
    changed = [position for position, row in enumerate(rows) if row.scores is not None]
    scores = [torch.tensor(rows[position].scores, dtype=torch.float32) for position in changed]
    tq.kv_batch_put(
        keys=[batch.keys[position] for position in changed],
        partition_id=batch.partition_id,
        fields=tensordict_utils.get_tensordict(
            {"rm_scores": torch.nested.as_nested_tensor(scores, layout=torch.jagged)}
        ),
    )


def _only(batch: Any, rows: list[BatchRow], kept: list[int]) -> tuple[Any, list[BatchRow]]:
    """The batch of some rows, the others cleared from the queue; and all rows, told which are trained."""
    chosen = set(kept)
    left_out = [key for position, key in enumerate(batch.keys) if position not in chosen]
    if left_out:
        tq.kv_clear(keys=left_out, partition_id=batch.partition_id)
    smaller = batch.select_keys([batch.keys[position] for position in kept])
    return smaller, [replace(row, trained=position in chosen) for position, row in enumerate(rows)]


def _leave_group(batch: Any, rows: list[BatchRow]) -> None:
    failed = [i for i, row in enumerate(rows) if row.infra_failed]
    if not failed:
        return
    for i in failed:
        batch.tags[i]["is_padding"] = True
    # The trainer reads tags anew from the queue, so they are put there too.
    tq.kv_batch_put(
        keys=[batch.keys[i] for i in failed],
        partition_id=batch.partition_id,
        fields=tensordict_utils.get_tensordict({"uid": [f"infra{uuid4().hex}" for _ in failed]}),
        tags=[batch.tags[i] for i in failed],
    )


def _tell_states(batch: Any, rows: list[BatchRow]) -> None:
    """Append what each turn began from to the `uid`, which is all that an estimator sees of a trajectory."""
    told = [i for i, row in enumerate(rows) if row.record is not None and not row.infra_failed]
    if not told:
        return
    uids = [rows[i].key.rsplit("_", 2)[0] for i in told]
    tagged = tag_uids(uids, [(rows[i].record or {})["states"] for i in told])
    fields = tensordict_utils.get_tensordict({"uid": tagged})
    tq.kv_batch_put(keys=[batch.keys[i] for i in told], partition_id=batch.partition_id, fields=fields)
