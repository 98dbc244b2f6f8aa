"""HuggingFaceEngine: serve a local model directory on the CPU, in batches, with exact tokens."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import SamplingParams, TokenOutput
from ..chat_template import Tokenizer
from .decoding import Row, decode
from .prefix import SharedPrefix
from .room import tokens_allowed
from .tokenizer import load_tokenizer


@dataclass(slots=True)
class _Request:
    row: Row
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[TokenOutput]


class HuggingFaceEngine:
    """A causal language model of a local directory.

    Requests that wait together are decoded as one batch in a thread of the engine's own; the event loop stays free.

    Args:
        model_dir: a directory as `save_pretrained` writes it, with a tokenizer that has a chat template.
        max_batch: rows decoded side by side.
        chat_template: a Jinja template that replaces the tokenizer's own.
        threads: torch threads; None leaves torch's setting.

    Raises:
        ConfigError: on entering: no such directory, or no model and tokenizer in it.
    """

    tokenizer: Tokenizer
    max_context: int

    def __init__(
        self,
        model_dir: str | Path,
        *,
        max_batch: int = 64,
        chat_template: str | None = None,
        threads: int | None = None,
    ) -> None:
        self._model_dir = Path(model_dir)
        self._max_batch = max_batch
        self._chat_template = chat_template
        self._threads = threads
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

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        """Sample one continuation; see `Engine.generate`.

        Raises:
            EngineError: the prompt is empty or fills the context, or decoding failed.
        """
        if self._worker is None or self._stopped:
            raise EngineError("the engine is not running: use it inside 'async with'")
        tokens_allowed(prompt_ids, sampling, self.max_context)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[TokenOutput] = loop.create_future()
        stop_ids = frozenset([*sampling.stop_token_ids, cast(int, self.tokenizer.eos_token_id)])
        row = Row(prompt_ids, sampling, stop_ids, cancelled=lambda: future.cancelled() or self._stopped)
        self._queue.put(_Request(row, loop, future))
        return await future

    def _load(self) -> None:
        if not (self._model_dir / "config.json").is_file():
            raise ConfigError(f"model: {self._model_dir} is not a model directory (it has no config.json)")
        import torch
        from transformers import AutoModelForCausalLM

        if self._threads is not None:
            torch.set_num_threads(self._threads)
        self.tokenizer = load_tokenizer(self._model_dir, self._chat_template)
        try:
            model = AutoModelForCausalLM.from_pretrained(
                str(self._model_dir), local_files_only=True, dtype=torch.float32
            )
        except Exception as error:
            raise ConfigError(f"model: cannot load {self._model_dir}: {error}") from error
        model.train(False)
        self._model = model
        self.max_context = int(model.config.max_position_embeddings)

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, stop = self._gather(first)
            self._decode(batch)
            if stop:
                break
        self._refuse_waiting()

    def _gather(self, first: _Request) -> tuple[list[_Request], bool]:
        batch = [first]
        while len(batch) < self._max_batch:
            try:
                request = self._queue.get_nowait()
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
            _post(request, lambda: request.future.set_result(row.output()))

        rows = [request.row for request in waiting.values()]
        if not rows:
            return
        pad_id = cast(int, self.tokenizer.eos_token_id)  # masked, so any id will do
        try:
            decode(self._model, rows, pad_id, self.max_context, finished, self._prefix)
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
