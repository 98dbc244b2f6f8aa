"""HuggingFaceEngine: serve a local model directory on the CPU, in batches, with exact tokens."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import ImageInput, SamplingParams, TokenOutput
from ..chat_template import Tokenizer
from ..vision.processor import load_processor
from .decoding import Row, decode
from .model_digest import model_digest
from .prefix import SharedPrefix
from .room import tokens_allowed
from .tokenizer import load_tokenizer


@dataclass(slots=True)
class _Request:
    row: Row
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[TokenOutput]


class HuggingFaceEngine:
    """A causal language model of a local directory, or one that sees and speaks (Qwen2-VL, LLaVA, …).

    Requests that wait together are decoded as one batch in a thread of the engine's own; the event loop stays free.

    Args:
        model_dir: a directory as `save_pretrained` writes it, with a tokenizer that has a chat template.
        max_batch: rows decoded side by side.
        chat_template: a Jinja template that replaces the tokenizer's own.
        threads: torch threads; None leaves torch's setting.
        gather_s: seconds that the first request of a batch waits for others.
        scaled_logprobs: log-probabilities are at the sampling temperature (see `sampling.sample`).

    Raises:
        ConfigError: on entering: no such directory, or no model and tokenizer in it.
    """

    tokenizer: Tokenizer
    processor: Any
    max_context: int
    model_id: str

    def __init__(
        self,
        model_dir: str | Path,
        *,
        max_batch: int = 64,
        chat_template: str | None = None,
        threads: int | None = None,
        gather_s: float = 0.0,
        scaled_logprobs: bool = False,
    ) -> None:
        self._model_dir = Path(model_dir)
        self._max_batch = max_batch
        self._chat_template = chat_template
        self._threads = threads
        self._gather_s = gather_s
        self._scaled_logprobs = scaled_logprobs
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._model: Any = None
        self._stopped = False
        self._prefix = SharedPrefix()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._load)
        self._worker = threading.Thread(target=self._serve, name="rollbox-engine", daemon=True)
        self._worker.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stopped = True
        self._queue.put(None)
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join)
        self._model = None

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Sequence[ImageInput] = ()
    ) -> TokenOutput:
        """Sample one continuation; see `VisionEngine.generate`.

        Raises:
            EngineError: the prompt is empty or fills the context, or decoding failed.
        """
        if self._worker is None or self._stopped:
            raise EngineError("the engine is not running: use it inside 'async with'")
        tokens_allowed(prompt_ids, sampling, self.max_context)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[TokenOutput] = loop.create_future()
        stop_ids = frozenset([*sampling.stop_token_ids, cast(int, self.tokenizer.eos_token_id)])
        pixels = [image.pixels for image in images]
        row = Row(prompt_ids, sampling, stop_ids, pixels, cancelled=lambda: future.cancelled() or self._stopped)
        self._queue.put(_Request(row, loop, future))
        return await future

    def load_weights(self, weights: Mapping[str, Any]) -> set[int]:
        """Overwrite parameters by name. No request may be in flight.

        Args:
            weights: name -> tensor, all of the model's or some.

        Returns:
            Where the overwritten parameters lie in memory; tied ones lie in one place. See `weights_at`.

        Raises:
            EngineError: the engine is not running, or a name or shape is not the model's.
        """
        import torch

        state = self._state()
        for name, tensor in weights.items():
            if name not in state or state[name].shape != tensor.shape:
                own = tuple(state[name].shape) if name in state else "no parameter of that name"
                raise EngineError(
                    f"weights: {name!r} of shape {tuple(tensor.shape)} does not fit (the model has {own})"
                )
            with torch.no_grad():
                state[name].copy_(tensor)
        self._prefix.forget()
        return {state[name].data_ptr() for name in weights}

    def weights_at(self) -> dict[int, str]:
        """Where each parameter lies in memory -> its name (one of them, where several are tied)."""
        return {tensor.data_ptr(): name for name, tensor in self._state().items()}

    def _state(self) -> dict[str, Any]:
        if self._model is None:
            raise EngineError("the engine is not running: use it inside 'async with'")
        return dict(self._model.state_dict())

    def _load(self) -> None:
        if not (self._model_dir / "config.json").is_file():
            raise ConfigError(f"model: {self._model_dir} is not a model directory (it has no config.json)")
        import torch
        from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

        if self._threads is not None:
            torch.set_num_threads(self._threads)
        self.tokenizer = load_tokenizer(self._model_dir, self._chat_template)
        self.processor = load_processor(self._model_dir, self.tokenizer)
        kind = AutoModelForCausalLM if self.processor is None else AutoModelForImageTextToText
        try:
            model = kind.from_pretrained(str(self._model_dir), local_files_only=True, dtype=torch.float32)
        except Exception as error:
            raise ConfigError(f"model: cannot load {self._model_dir}: {error}") from error
        self.model_id = model_digest(self._model_dir)
        model.train(False)
        self._model = model
        self.max_context = int(model.config.get_text_config().max_position_embeddings)

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, stop = self._gather(first)
            self._decode(batch)
            if stop:
                break
        self._refuse_waiting()

    def _gather(self, first: _Request) -> tuple[list[_Request], bool]:
        batch = [first]
        until = time.monotonic() + self._gather_s
        while len(batch) < self._max_batch:
            try:
                request = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if request is None:
                return batch, True
            batch.append(request)
        return batch, False

    def _decode(self, batch: list[_Request]) -> None:
        waiting = {id(request.row): request for request in batch if not request.future.cancelled()}

        def finished(row: Row) -> None:
            request = waiting.pop(id(row))
            try:
                output = row.output()
            except ValueError as error:  # such as weights that give no numbers
                _fail(request, EngineError(f"the generation is not usable: {error}"))
                return
            _post(request, lambda: request.future.set_result(output))

        rows = [request.row for request in waiting.values()]
        if not rows:
            return
        pad_id = cast(int, self.tokenizer.eos_token_id)  # masked, so any id will do
        try:
            decode(
                *(self._model, rows, pad_id, self.max_context, finished, self._prefix),
                processor=self.processor,
                scaled_logprobs=self._scaled_logprobs,
            )
        except Exception as error:  # noqa: BLE001 - whatever torch raises ends these requests, not the engine
            failure = EngineError(f"decoding failed: {type(error).__name__}: {error}")
            for request in waiting.values():
                _fail(request, failure)

    def _refuse_waiting(self) -> None:
        while True:
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                return
            if request is not None:
                _fail(request, EngineError("the engine was closed"))


def _fail(request: _Request, error: EngineError) -> None:
    _post(request, lambda: request.future.set_exception(error))


def _post(request: _Request, act: Callable[[], None]) -> None:
    def unless_done() -> None:
        if not request.future.done():
            act()

    # RuntimeError: the caller's loop is closed, so nobody waits any more.
    with contextlib.suppress(RuntimeError):
        request.loop.call_soon_threadsafe(unless_done)
