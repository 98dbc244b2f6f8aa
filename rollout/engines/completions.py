"""CompletionsEngine: a vLLM server's `/v1/completions`, token ids in and token ids out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import aiohttp

from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import SamplingParams, TokenOutput
from ..chat_template import Tokenizer

_SHOWN_CHARS = 300


class CompletionsEngine:
    """Sends prompt ids to a server that returns the sampled ids (vLLM >= 0.10.2: `return_token_ids`).

    Args:
        url: base address of the server, such as `http://127.0.0.1:8000`.
        tokenizer_dir: local directory of the model's tokenizer; the prompt is rendered on this side.
        model: the served model's name; None asks the server.
        api_key: sent as a bearer token.
        timeout_s: seconds for one generation.

    Raises:
        ConfigError: `url` is no address; on entering: the server does not answer, or the tokenizer cannot be loaded.
    """

    tokenizer: Tokenizer
    max_context: int

    def __init__(
        self,
        url: str,
        tokenizer_dir: str | Path,
        *,
        model: str | None = None,
        api_key: str | None = None,
        chat_template: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigError(f"model: {url!r} is not an address such as http://127.0.0.1:8000")
        self._url = url.rstrip("/").removesuffix("/v1")
        self._tokenizer_dir = Path(tokenizer_dir)
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._chat_template = chat_template
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self.tokenizer = await asyncio.to_thread(self._load_tokenizer)
        connector = aiohttp.TCPConnector(limit=0)  # the rollout's own concurrency is the limit
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout, connector=connector)
        try:
            await self._ask_model()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        """Sample one continuation; see `Engine.generate`.

        Raises:
            EngineError: the server failed, or answered without token ids.
        """
        body = {
            "model": self._model,
            "prompt": prompt_ids,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "seed": sampling.seed,
            "stop_token_ids": [*sampling.stop_token_ids, self.tokenizer.eos_token_id],
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        return _read(await self._post("/v1/completions", body))

    async def _ask_model(self) -> None:
        try:
            found = (await self._request("GET", "/v1/models", None))["data"]
            names = [card["id"] for card in found]
        except (EngineError, KeyError, TypeError) as error:
            raise ConfigError(f"model: no usable answer from {self._url}/v1/models: {error}") from error
        self._model = self._model or names[0]
        if self._model not in names:
            raise ConfigError(f"model: {self._url} does not serve {self._model!r}; it serves: {', '.join(names)}")
        limit = found[names.index(self._model)].get("max_model_len")
        self.max_context = int(limit) if limit else 1 << 30

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request("POST", path, body)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        if self._session is None:
            raise EngineError("the engine is not running: use it inside 'async with'")
        where = f"{self._url}{path}"
        try:
            async with self._session.request(method, where, json=body) as answer:
                text = await answer.text()
                if answer.status != 200:
                    raise EngineError(f"{where} answered {answer.status}: {text[:_SHOWN_CHARS]}")
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise EngineError(f"{where}: {type(error).__name__}: {error}") from error

    def _load_tokenizer(self) -> Tokenizer:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(self._tokenizer_dir), local_files_only=True)
        except Exception as error:
            raise ConfigError(f"tokenizer: cannot load {self._tokenizer_dir}: {error}") from error
        if self._chat_template is not None:
            tokenizer.chat_template = self._chat_template
        return cast(Tokenizer, tokenizer)


def _read(answer: Any) -> TokenOutput:
    try:
        choice = answer["choices"][0]
        token_ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        reason = "length" if choice["finish_reason"] == "length" else "stop"
        return TokenOutput.model_validate({"token_ids": token_ids, "logprobs": logprobs, "finish_reason": reason})
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError(
            f"the completion has no {error}: the server must support 'return_token_ids' and 'logprobs'"
        ) from error
    except ValueError as error:
        raise EngineError(f"the completion is not usable: {error}") from error
