"""The inference server of CPU training: a Ray actor around our local engine, with the methods that verl calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from verl.workers.rollout.replica import TokenOutput

from ...rollout.engines.huggingface import HuggingFaceEngine
from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import SamplingParams
from ...schemas.validation import validated

_GATHER_S = 0.01  # the calls of a batch reach an actor one by one


class CpuServer:
    """Serves one model, tokens in and tokens out, and takes new weights between generations.

    Args:
        config: verl's `RolloutConfig`. model_dir: the model as the trainer starts from it.
        seed: of the sampling.
        threads: torch threads.
    """

    def __init__(self, config: Any, model_dir: str, seed: int, threads: int) -> None:
        import torch

        torch.manual_seed(seed)
        self._config = config
        self._engine = HuggingFaceEngine(
            model_dir, max_batch=config.max_num_seqs, threads=threads, gather_s=_GATHER_S, scaled_logprobs=True
        )
        self._generating: set[asyncio.Task[Any]] = set()
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._updated: set[int] = set()
        self._version: int | None = None

    async def launch(self) -> None:
        """Load the model.

        Raises:
            ConfigError: there is no model in the directory.
        """
        await self._engine.__aenter__()
        self._open.set()

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str, **media: Any
    ) -> TokenOutput:
        """Sample one continuation.

        Args:
            sampling_params: temperature, top_p, top_k, stop_token_ids, logprobs, and the tokens at most as
                `max_tokens` or `max_new_tokens`.

        Raises:
            ConfigError: a parameter is unknown or wrong, or images are given.
            EngineError: decoding failed, or the prompt leaves no room.
        """
        if any(value is not None for value in media.values()):
            raise ConfigError(f"rollbox_cpu: takes text only (got {', '.join(sorted(media))})")
        sampling, wants_logprobs = self._sampling(sampling_params, len(prompt_ids))
        async with self._slot():
            version = self._version
            work = asyncio.ensure_future(self._engine.generate(request_id, list(prompt_ids), sampling))
            self._generating.add(work)
            try:
                output = await work
            except asyncio.CancelledError:
                # Given up by `abort_all_requests`, unless it is this call itself that is cancelled.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted")
            finally:
                self._generating.discard(work)
        return TokenOutput(
            token_ids=output.token_ids,
            log_probs=output.logprobs if wants_logprobs else None,
            stop_reason="completed",
            extra_fields={"global_steps": version},
        )

    async def begin_update(self) -> None:
        """Hold generation back and wait until none is running; `finish_update` goes on with it."""
        self._open.clear()
        await self._idle.wait()
        self._updated = set()

    async def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Take some of the new weights (name -> tensor), between `begin_update` and `finish_update`.

        Raises:
            EngineError: a name or shape is not the model's.
        """
        self._updated |= self._engine.load_weights(weights)

    async def finish_update(self, version: int | None) -> None:
        """Generate with the new weights.

        Args:
            version: the trainer's step, told with every output.

        Raises:
            EngineError: a parameter got no new value; generation stays held back.
        """
        missing = [name for at, name in self._engine.weights_at().items() if at not in self._updated]
        if missing:
            raise EngineError(f"weights: {len(missing)} parameters were not sent, {missing[0]!r} first")
        self._version = version
        self._open.set()

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Give up what is being generated; the callers are told `aborted`."""
        running = list(self._generating)
        for work in running:
            work.cancel()
        return {"aborted_count": len(running), "request_ids": []}

    async def set_global_steps(self, global_steps: int) -> None:
        self._version = global_steps

    async def resume_generation(self) -> None:
        """Nothing is held back between `abort_all_requests` and this: aborted callers ask again."""

    # The model stays where it is and keeps no cache between batches, so there is nothing to free or to restore.
    async def wake_up(self, tags: list[str] | None = None) -> None:
        pass

    async def sleep(self) -> None:
        pass

    async def clear_kv_cache(self) -> None:
        pass

    async def release_kv_cache(self) -> None:
        pass

    async def resume_kv_cache(self) -> None:
        pass

    async def start_profile(self, **options: Any) -> None:
        pass

    async def stop_profile(self) -> None:
        pass

    def _sampling(self, given: Mapping[str, Any], prompt_tokens: int) -> tuple[SamplingParams, bool]:
        fields = {key: value for key, value in given.items() if value is not None}
        wants_logprobs = bool(fields.pop("logprobs", False))
        if fields.pop("repetition_penalty", 1.0) != 1.0:
            raise ConfigError("rollbox_cpu: repetition_penalty is not supported; leave it at 1.0")
        room = self._config.prompt_length + self._config.response_length - prompt_tokens
        wanted = fields.pop("max_new_tokens", None) or self._config.response_length
        fields["max_tokens"] = max(1, min(fields.get("max_tokens", wanted), room))
        fields["top_k"] = max(0, fields.get("top_k", 0))  # verl's -1 means no limit
        return validated(SamplingParams, fields, "rollbox_cpu: sampling parameters"), wants_logprobs

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        while not self._open.is_set():
            await self._open.wait()
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
