"""How new weights get from verl's worker to the CPU server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout

from ...schemas.errors import ConfigError
from .names import ROLLOUT, server_name

_MB = 1 << 20


class CpuServerAdapter(BaseRollout):
    """The trainer's side of the server, in each worker of the model; the first of each replica sends."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ["RANK"])
        size = (
            self.config.tensor_model_parallel_size
            * self.config.data_parallel_size
            * self.config.pipeline_model_parallel_size
        )
        self._replica_rank = rank // size if replica_rank == -1 else replica_rank
        self._sends = rank % size == 0
        self._handle: Any = None

    def _server(self) -> Any:
        # The server is started after the workers.
        if self._handle is None:
            self._handle = ray.get_actor(server_name(self._replica_rank))
        return self._handle

    async def resume(self, tags: list[str]) -> None:
        """The server frees nothing, so there is nothing to resume."""

    async def release(self) -> None:
        """The server frees nothing."""

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        peft_config: Any = None,
        **options: Any,
    ) -> None:
        """Send all weights, in parts of `checkpoint_engine.update_weights_bucket_megabytes`.

        Raises:
            ConfigError: the weights are a LoRA adapter, or no named tensors.
        """
        if wire_format != "named_tensors":
            raise ConfigError(
                f"rollout.name={ROLLOUT}: checkpoint_engine must send named tensors (got {wire_format!r})"
            )
        if peft_config is not None:
            raise ConfigError(f"rollout.name={ROLLOUT}: cannot serve a LoRA adapter; set model.lora.merge=True")
        limit = self.config.checkpoint_engine.update_weights_bucket_megabytes * _MB
        parts = _parts(weights, limit)
        if not self._sends:
            # Reading a weight gathers it from all workers, so every worker reads all of them.
            for _ in parts:
                pass
            return
        server = self._server()
        await server.begin_update.remote()
        for part in parts:
            await server.load_weights.remote(part)
        await server.finish_update.remote(global_steps)


@torch.no_grad()
def _parts(weights: Iterable[tuple[str, torch.Tensor]], limit: int) -> Iterator[dict[str, torch.Tensor]]:
    """Copies of the weights, about `limit` bytes at a time."""
    part: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in weights:
        part[name] = tensor.detach().to("cpu", copy=True)
        size += tensor.numel() * tensor.element_size()
        if size >= limit:
            yield part
            part, size = {}, 0
    if part:
        yield part
