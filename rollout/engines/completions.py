"""CompletionsEngine: a vLLM server's `/v1/completions`, token ids in and token ids out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...schemas.errors import EngineError
from ...schemas.generation import ImageInput, SamplingParams, TokenOutput
from .http_client import EngineClient
from .room import tokens_allowed
from .served import ServedEngine
from .served_models import served_model
from .token_generate import PATH, generate_body, read_generated, takes_images

# A server fills what is left out from the model's generation_config.json (Qwen2.5's has a repetition penalty); the
# tokens would then not be samples of the model whose logprobs come with them.
_NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


class CompletionsEngine(ServedEngine):
    """Sends prompt ids to a server that returns the sampled ids (vLLM >= 0.10.2: `return_token_ids`).

    A cancelled request closes its connection, upon which vLLM drops it.

    This interface knows no images. Prompts that hold some go to vLLM's `/inference/v1/generate` (0.32, with
    `--enable-scale-out`); where a server has it not, `processor` is None, so that the model is shown text only.

    Args:
        urls: base address of the server, such as `http://127.0.0.1:8000`, or several of equal servers.
        tokenizer_dir: local directory of the model's tokenizer; the prompt is rendered on this side.
        model: the served model's name; None asks the server.
        api_key: sent as a bearer token.
        extra_body: further fields of each request, such as vLLM's `{"structured_outputs": {"regex": "…"}}`.
        timeout_s, retry_s: see `EngineClient`.

    Raises:
        ConfigError: `urls` are no addresses; on entering: a server does not answer, or the tokenizer cannot be loaded.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        tokenizer_dir: str | Path,
        *,
        model: str | None = None,
        api_key: str | None = None,
        chat_template: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        retry_s: float = 30.0,
    ) -> None:
        client = EngineClient(urls, api_key=api_key, timeout_s=timeout_s, retry_s=retry_s)
        super().__init__(client, tokenizer_dir, chat_template)
        self._model = model
        self._extra = {**_NEUTRAL, **(extra_body or {})}

    async def _ask_servers(self) -> None:
        self._serves(await served_model(self._client, self._model))
        if self.processor is not None and not await takes_images(self._client):
            self.processor = None

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Sequence[ImageInput] = ()
    ) -> TokenOutput:
        """Sample one continuation; see `VisionEngine.generate`.

        Raises:
            EngineError: the prompt is empty or fills the context, or the server failed, answered without token ids, or
                made other tokens of the prompt's images.
        """
        params = {
            "max_tokens": tokens_allowed(prompt_ids, sampling, self.max_context),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "seed": sampling.seed,
            "stop_token_ids": [*sampling.stop_token_ids, self.tokenizer.eos_token_id],
            "logprobs": 0,
            "skip_special_tokens": False,
            **self._extra,
        }
        if images:
            body = await generate_body(self.model_name, prompt_ids, params, images)
            return read_generated(await self._client.post(PATH, body, request_id), prompt_ids)
        body = {"model": self.model_name, "prompt": prompt_ids, "return_token_ids": True, **params}
        return _read(await self._client.post("/v1/completions", body, request_id))


def _read(answer: Any) -> TokenOutput:
    try:
        choice = answer["choices"][0]
        token_ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError(
            f"the completion has no {error}: the server must support 'return_token_ids' and 'logprobs'"
        ) from error
    try:
        return TokenOutput.model_validate({"token_ids": token_ids, "logprobs": logprobs, "finish_reason": reason})
    except ValueError as error:
        raise EngineError(f"the completion is not usable: {error}") from error
