"""A reward model behind a pooling server: vLLM's, or SGLang's."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from ..schemas.errors import ConfigError, InfraError
from ..schemas.reward_config import RewardModelPart
from ..schemas.trajectory import Trajectory
from .api import ServedPart
from .parts import Measured
from .reward_model import Chat, chat_of, reward_value
from .service import ScoringService


class ServedRewardModel(ServedPart):
    """One request per answer; the server makes the batches. Both engines serve `POST /classify`, in their own words:

    | engine | sent | read |
    |---|---|---|
    | `vllm` | `messages`, or with a tokenizer `input` (token ids) | `data[0].probs`, the logit by `use_activation` |
    | `sglang` | `input_ids` | `[0].embedding` |

    SGLang's `/v1/classify` would not do: its softmax makes a 1 of any single output.
    """

    def __init__(self, name: str, part: RewardModelPart) -> None:
        assert part.service is not None
        super().__init__(name, ScoringService(part.service))
        self._part = part
        self._tokenizer: Any = None

    async def __aenter__(self) -> Self:
        """
        Raises:
            ConfigError: the tokenizer cannot be loaded, or has no chat template.
        """
        if self._part.tokenizer is not None:
            self._tokenizer = await asyncio.to_thread(_load_tokenizer, self._part.tokenizer, self.name)
        await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        self._tokenizer = None

    async def __call__(self, trajectory: Trajectory) -> Measured:
        """
        Raises:
            ConfigError: the server refuses the request, such as an unknown model.
            InfraError: it failed, or answered with something that is not one number.
        """
        answer = await self.service.post("/classify", await self._request(chat_of(trajectory)))
        try:
            [logit] = [float(number) for number in _outputs(answer, self._part.engine)]
        except (KeyError, IndexError, TypeError, ValueError):
            url = self.service.settings.url
            raise InfraError(f"{url} answered with something else than one number per answer") from None
        return Measured({self.name: reward_value(logit, self._part.sigmoid)}, {f"{self.name}/logit": logit})

    async def _request(self, chat: Chat) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._part.model}
        if self._part.engine == "sglang":
            return {**body, "input_ids": [await self._ids(chat)]}
        body["use_activation"] = False
        if self._part.tokenizer is not None:
            return {**body, "input": await self._ids(chat)}
        # -1 is what the model can take: a longer conversation is no fault of the request.
        longest = self._part.max_tokens if "max_tokens" in self._part.model_fields_set else -1
        return {**body, "messages": chat, "truncate_prompt_tokens": longest, "truncation_side": "left"}

    async def _ids(self, chat: Chat) -> list[int]:
        if self._tokenizer is None:
            raise ConfigError("rewards: not open; score inside `async with` of the rewards")
        try:
            return await asyncio.to_thread(_chat_ids, self._tokenizer, chat, self._part.max_tokens)
        except Exception as error:  # a chat template raises what it likes
            raise InfraError(
                f"reward_model {self._part.model}: its chat template refuses the answer: {error}"
            ) from error


def _outputs(answer: Any, engine: str) -> list[Any]:
    found: list[Any] = answer["data"][0]["probs"] if engine == "vllm" else answer[0]["embedding"]
    return found


def _chat_ids(tokenizer: Any, chat: Chat, max_tokens: int) -> list[int]:
    """The conversation by the chat template, cut at the front: the answer is at the end."""
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])[-max_tokens:]


def _load_tokenizer(directory: str, name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory)
    except (OSError, ValueError) as error:
        raise ConfigError(f"parts.{name}.tokenizer: {directory} cannot be loaded: {error}") from error
    if tokenizer.chat_template is None:
        raise ConfigError(f"parts.{name}.tokenizer: {directory} has no chat template")
    return tokenizer
