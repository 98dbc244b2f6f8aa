"""VllmEngine: vLLM inside this process's program, by its AsyncLLM; ids in, ids and logprobs out."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import ImageInput, SamplingParams, TokenOutput
from ..chat_template import Tokenizer
from ..vision.image_tokens import collapsed
from ..vision.processor import load_processor
from .model_digest import model_digest
from .prompt_check import check_prompt
from .room import tokens_allowed
from .tokenizer import load_tokenizer


class VllmEngine:
    """A model directory served by vLLM, which batches what is in flight and keeps prefixes in its cache.

    The model itself runs in a process that vLLM starts and that ends with the context. A cancelled `generate` drops its
    request.

    Args:
        model_dir: a directory as `save_pretrained` writes it, with a tokenizer that has a chat template.
        engine_args: further arguments of vLLM's `AsyncEngineArgs`, such as `tensor_parallel_size`.
        sampling_args: further arguments of vLLM's `SamplingParams`, such as `structured_outputs`.

    Raises:
        ConfigError: on entering: vLLM is not installed, no such directory, or vLLM does not start with it.
    """

    tokenizer: Tokenizer
    processor: Any
    max_context: int
    model_id: str

    def __init__(
        self,
        model_dir: str | Path,
        *,
        chat_template: str | None = None,
        engine_args: Mapping[str, Any] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._model_dir = Path(model_dir)
        self._chat_template = chat_template
        self._engine_args = dict(engine_args or {})
        self._sampling_args = dict(sampling_args or {})
        self._llm: Any = None
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # vLLM cannot be stopped while it starts, and must not be left behind.
            await asyncio.wait([starting])
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        llm, self._llm = self._llm, None
        if llm is None:
            return
        if llm.output_handler is not None:
            # It would take the end of the process that it reads from for a crash.
            llm.output_handler.cancel()
        await asyncio.to_thread(llm.shutdown)

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Sequence[ImageInput] = ()
    ) -> TokenOutput:
        """Sample one continuation; see `VisionEngine.generate`.

        Raises:
            EngineError: the prompt is empty or fills the context, vLLM refused it or made another one of its images, or
                its process is dead.
        """
        if self._llm is None:
            raise EngineError("the engine is not running: use it inside 'async with'")
        max_tokens = tokens_allowed(prompt_ids, sampling, self.max_context)
        # vLLM wants ids that no other request has; the same trajectory may be asked for twice.
        unique_id = f"{request_id}-{next(self._numbers)}"
        prompt: dict[str, Any] = {"prompt_token_ids": prompt_ids}
        if images:
            pixels = [image.pixels for image in images]
            prompt = {"prompt_token_ids": collapsed(prompt_ids, images), "multi_modal_data": {"image": pixels}}
        last: Any = None
        seen: list[int] = []
        try:
            async for output in self._llm.generate(prompt, self._sampling_params(sampling, max_tokens), unique_id):
                last, seen = output.outputs[0], output.prompt_token_ids
        except Exception as error:
            cause = error.__cause__ or error
            raise EngineError(f"vLLM: {type(cause).__name__}: {cause}") from error
        if last is None or last.finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM ended the request with {getattr(last, 'finish_reason', 'nothing')!r}")
        if images:
            check_prompt(prompt_ids, seen, "vLLM")
        logprobs = [entry[token_id].logprob for token_id, entry in zip(last.token_ids, last.logprobs, strict=True)]
        try:
            return TokenOutput(token_ids=list(last.token_ids), logprobs=logprobs, finish_reason=last.finish_reason)
        except ValueError as error:
            raise EngineError(f"the generation is not usable: {error}") from error

    def _sampling_params(self, sampling: SamplingParams, max_tokens: int) -> Any:
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        return VllmSamplingParams(
            max_tokens=max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            seed=sampling.seed,
            stop_token_ids=[*sampling.stop_token_ids, cast(int, self.tokenizer.eos_token_id)],
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **self._sampling_args,
        )

    def _start(self) -> None:
        if not (self._model_dir / "config.json").is_file():
            raise ConfigError(f"model: {self._model_dir} is not a model directory (it has no config.json)")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        # vLLM logs to stdout, which belongs to the command that runs here.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise ConfigError(f"vllm: cannot be imported ({error}); install it with: pip install vllm") from error
        self.tokenizer = load_tokenizer(self._model_dir, self._chat_template)
        self.processor = load_processor(self._model_dir, self.tokenizer)
        settings = {"enable_prefix_caching": True, "logprobs_mode": "raw_logprobs", **self._engine_args}
        try:
            self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=str(self._model_dir), **settings))
        except Exception as error:
            raise ConfigError(f"vllm: does not start with {self._model_dir}: {error}") from error
        self.max_context = int(self._llm.model_config.max_model_len)
        self.model_id = model_digest(self._model_dir)
