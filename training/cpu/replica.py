"""`rollout.name=rollbox_cpu`: where verl starts the CPU server."""

from __future__ import annotations

import ray
from verl.workers.rollout.replica import RolloutMode, RolloutReplica

from ...schemas.errors import ConfigError
from .names import ROLLOUT, server_name
from .server import CpuServer


class CpuReplica(RolloutReplica):
    """One server, beside the worker whose weights it serves.

    Raises:
        ConfigError: the trainer wants servers apart from its workers, or a reward model.
    """

    async def launch_servers(self) -> None:
        if self.rollout_mode is not RolloutMode.HYBRID or self.is_reward_model or self.is_teacher_model:
            raise ConfigError(
                f"rollout.name={ROLLOUT}: serves the policy in the colocated trainer only "
                f"(trainer.v1.trainer_mode=sync; got mode {self.rollout_mode.value!r})"
            )
        options = dict(self.config.engine_kwargs.get(ROLLOUT) or {})
        threads = int(options.pop("threads", 1))
        if options:
            raise ConfigError(
                f"rollout.engine_kwargs.{ROLLOUT}: unknown key {next(iter(options))!r}; there is: threads"
            )
        server = (
            ray.remote(CpuServer)
            # No CPU is asked for: it works while the trainer waits.
            .options(
                name=server_name(self.replica_rank, self.name_suffix), num_cpus=0, max_concurrency=self.max_concurrency
            )
            .remote(self.config, self.model_config.path, self.config.seed + self.replica_rank, threads)
        )
        await server.launch.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"{ray.util.get_node_ip_address()}:{ROLLOUT}-{self.replica_rank}"
