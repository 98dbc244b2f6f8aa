"""SGLangEngine: an SGLang server's `/generate`, token ids in and token ids out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import ImageInput, SamplingParams, TokenOutput
from .data_uris import data_uris
from .http_client import EngineClient
from .room import tokens_allowed
from .served import ServedEngine
from .served_models import served_model

# A server may have been started with `--preferred-sampling-params`, which fill what a request leaves out.
_NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


class SGLangEngine(ServedEngine):
    """Sends `input_ids` and reads the sampled ids from `output_token_logprobs`, the end token included.

    A cancelled request closes its connection; SGLang looks for that every few seconds and drops the request. A seed is
    kept to only by a server with `--enable-deterministic-inference`.

    Images go along as `image_data`. SGLang then tokenises the prompt's text anew; that it has as many tokens as before
    is checked, not that they are the same.

    Args:
        urls: base address of the server, such as `http://127.0.0.1:30000`, or several of equal servers.
        tokenizer_dir: local directory of the model's tokenizer; the prompt is rendered on this side.
        api_key: sent as a bearer token.
        original_logprobs: the server runs with SGLANG_RETURN_ORIGINAL_LOGPROB=1. Without it its logprobs are those
            after division by the temperature, so only temperatures of 1 and 0 (greedy) are allowed.
        extra_sampling: further entries of `sampling_params`, such as `{"regex": "…"}`.
        timeout_s, retry_s: see `EngineClient`.

    Raises:
        ConfigError: `urls` are no addresses; on entering: a server does not answer or is no generating SGLang server,
            or the tokenizer cannot be loaded.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        tokenizer_dir: str | Path,
        *,
        api_key: str | None = None,
        chat_template: str | None = None,
        original_logprobs: bool = False,
        extra_sampling: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        retry_s: float = 30.0,
    ) -> None:
        client = EngineClient(urls, api_key=api_key, timeout_s=timeout_s, retry_s=retry_s)
        super().__init__(client, tokenizer_dir, chat_template)
        self._original_logprobs = original_logprobs
        self._extra = {**_NEUTRAL, **(extra_sampling or {})}

    async def _ask_servers(self) -> None:
        await self._check_servers()
        self._serves(await served_model(self._client, None))

    async def _check_servers(self) -> None:
        # Newer servers call it /model_info as well; this name is known to all.
        for replica, info in zip(
            self._client.replicas.all, await self._client.get_from_all("/get_model_info"), strict=True
        ):
            if not isinstance(info, dict) or "model_path" not in info:
                raise ConfigError(f"model: {replica.url} is not an SGLang server: /get_model_info names no model_path")
            if not info.get("is_generation", True):
                raise ConfigError(f"model: {replica.url} serves {info['model_path']}, which does not generate")

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Sequence[ImageInput] = ()
    ) -> TokenOutput:
        """Sample one continuation; see `VisionEngine.generate`.

        Raises:
            EngineError: the prompt is empty or fills the context, or the server failed, answered without token ids, or
                made another number of tokens of the prompt's images.
            ConfigError: a temperature at which the server's logprobs are others than `TokenOutput` promises.
        """
        if sampling.temperature not in (0.0, 1.0) and not self._original_logprobs:
            raise ConfigError(
                f"temperature: {sampling.temperature:g} needs an SGLang server with SGLANG_RETURN_ORIGINAL_LOGPROB=1 "
                "(then set original_logprobs=True); otherwise its logprobs are not the model's"
            )
        params = {
            "max_new_tokens": tokens_allowed(prompt_ids, sampling, self.max_context),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "stop_token_ids": [*sampling.stop_token_ids, self.tokenizer.eos_token_id],
            "skip_special_tokens": False,
            **({} if sampling.seed is None else {"sampling_seed": sampling.seed}),
            **self._extra,
        }
        body = {"input_ids": prompt_ids, "sampling_params": params, "return_logprob": True, "stream": False}
        if images:
            body["image_data"] = await data_uris([image.pixels for image in images])
        answer = await self._client.post("/generate", body, request_id)
        output = _read(answer)
        if images and answer["meta_info"].get("prompt_tokens") != len(prompt_ids):
            raise EngineError(
                f"the server made {answer['meta_info'].get('prompt_tokens')} tokens of a prompt with images that has "
                f"{len(prompt_ids)} here: its processor is set otherwise than the one beside the tokenizer"
            )
        return output


def _read(answer: Any) -> TokenOutput:
    try:
        meta = answer["meta_info"]
        reason = meta["finish_reason"]
        if reason["type"] == "abort":
            raise EngineError(f"the server aborted the request: {reason.get('message', 'no reason given')}")
        # Entries are [logprob, id, text or null]. `output_ids` may lack the stop token.
        pairs = [(entry[1], entry[0]) for entry in meta["output_token_logprobs"]]
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError(f"the answer is not one of SGLang's /generate: {error!r}") from error
    try:
        return TokenOutput.model_validate(
            {
                "token_ids": [token_id for token_id, _ in pairs],
                "logprobs": [logprob for _, logprob in pairs],
                "finish_reason": reason["type"],
            }
        )
    except ValueError as error:
        raise EngineError(f"the generation is not usable: {error}") from error
