"""vLLM's `/inference/v1/generate`: ids and images in, ids out; a server has it with `--enable-scale-out`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ...schemas.errors import ConfigError, EngineError
from ...schemas.generation import ImageInput, TokenOutput
from ..vision.image_tokens import collapsed
from .data_uris import data_uris
from .http_client import EngineClient
from .prompt_check import check_prompt

PATH = "/inference/v1/generate"
_logger = logging.getLogger(__name__)


async def takes_images(client: EngineClient) -> bool:
    """Whether every server has the interface; logs how to get it where one has not."""
    try:
        paths = [answer["paths"] for answer in await client.get_from_all("/openapi.json")]
    except (ConfigError, KeyError, TypeError):
        paths = [{}]
    found = all(PATH in known for known in paths)
    if not found:
        _logger.warning(
            "model: it has a processor for images, and its server takes none with token ids, so it is shown text only; "
            "start vLLM (>= 0.32) with --enable-scale-out, or use the engine 'vllm' or 'chat'"
        )
    return found


async def generate_body(
    model: str | None, prompt_ids: list[int], params: Mapping[str, Any], images: Sequence[ImageInput]
) -> dict[str, Any]:
    """The request. `params`: sampling parameters by vLLM's names."""
    uris = await data_uris([image.pixels for image in images])
    return {
        "model": model,
        "token_ids": collapsed(prompt_ids, images),
        "content_parts": [{"type": "image_url", "url": uri} for uri in uris],
        "sampling_params": dict(params),
        "return_token_ids": True,
    }


def read_generated(answer: Any, prompt_ids: list[int]) -> TokenOutput:
    """
    Raises:
        EngineError: it is no generation, or of another prompt than `prompt_ids`.
    """
    try:
        choice = answer["choices"][0]
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        fields = {"token_ids": choice["token_ids"], "logprobs": logprobs, "finish_reason": choice["finish_reason"]}
        check_prompt(prompt_ids, answer["prompt_token_ids"], "the server")
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError(f"the answer is not one of vLLM's {PATH}: {error!r}") from error
    try:
        return TokenOutput.model_validate(fields)
    except ValueError as error:
        raise EngineError(f"the generation is not usable: {error}") from error
