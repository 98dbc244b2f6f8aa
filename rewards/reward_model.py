"""A reward model of this process: a sequence classifier with one output, asked in batches."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..schemas.errors import ConfigError, InfraError
from ..schemas.reward_config import RewardModelPart
from ..schemas.trajectory import Sample, Trajectory
from .parts import Measured

Chat = list[dict[str, str]]


def chat_of(trajectory: Trajectory) -> Chat:
    """The question and the model's last words, as reward models were taught on: no tool messages.

    Raises:
        ConfigError: a message of the question has no role.
    """
    return [*question_of(trajectory.sample), {"role": "assistant", "content": trajectory.answer_text}]


def question_of(sample: Sample) -> Chat:
    """The messages of a sample, their contents as text.

    Raises:
        ConfigError: one has no role.
    """
    for number, message in enumerate(sample.messages):
        if "role" not in message:
            raise ConfigError(f"sample {sample.sample_id!r}: messages.{number}: has no 'role'")
    return [{"role": str(message["role"]), "content": _text(message.get("content"))} for message in sample.messages]


def _text(content: Any) -> str:
    """Of a message; some data sets hold it as a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return str(content or "")


def reward_value(logit: float, sigmoid: bool) -> float:
    if not sigmoid:
        return logit
    return 1.0 / (1.0 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1.0 + math.exp(logit))


class LocalRewardModel:
    """A model of this process. What waits is scored together, up to `batch_size` texts at a time, in a thread.

    Raises on entering:
        ConfigError: the directory holds no such model, it has more than one output, takes fewer tokens than
            `max_tokens`, or its tokenizer has no chat template or no padding token; or there is no such device.
    """

    def __init__(self, name: str, part: RewardModelPart) -> None:
        self.name = name
        self._part = part
        self._waiting: asyncio.Queue[tuple[Chat, asyncio.Future[float]]] = asyncio.Queue()
        self._thread: ThreadPoolExecutor | None = None
        self._worker: asyncio.Task[None] | None = None
        self._tokenizer: Any = None
        self._max_tokens = part.max_tokens
        self._model: Any = None

    async def __aenter__(self) -> Self:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reward-model")
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        except BaseException:
            self._thread.shutdown()
            raise
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None and self._thread is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
            self._thread.shutdown()
            self._worker = self._thread = self._model = None

    async def __call__(self, trajectory: Trajectory) -> Measured:
        """
        Raises:
            ConfigError: not open.
            InfraError: the model failed, such as for want of memory, or its template refuses the conversation.
        """
        if self._worker is None:
            raise ConfigError("rewards: not open; score inside `async with` of the rewards")
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((chat_of(trajectory), answer))
        logit = await answer
        return Measured({self.name: reward_value(logit, self._part.sigmoid)}, {f"{self.name}/logit": logit})

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._part.batch_size and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            wanted = [(chat, answer) for chat, answer in batch if not answer.done()]  # a caller may have gone
            if not wanted:
                continue
            try:
                logits = await loop.run_in_executor(self._thread, self._score, [chat for chat, _ in wanted])
            except asyncio.CancelledError:
                for _, answer in wanted:
                    answer.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
                failure = InfraError(f"reward_model {self._part.model}: {type(error).__name__}: {error}")
                for _, answer in wanted:
                    if not answer.done():
                        answer.set_exception(failure)
                continue
            for (_, answer), logit in zip(wanted, logits, strict=True):
                if not answer.done():
                    answer.set_result(logit)

    def _load(self) -> None:
        where = f"reward_model: {self._part.model}"
        try:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise ConfigError(f"{where}: {error}; a local model needs torch and transformers") from error
        if not (Path(self._part.model) / "config.json").is_file():
            raise ConfigError(f"{where} is not a model directory")
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(self._part.model)
            self._model, loading = AutoModelForSequenceClassification.from_pretrained(
                self._part.model, output_loading_info=True
            )
        except Exception as error:  # a file that is cut, a configuration of another kind: each library has its own
            raise ConfigError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        if loading["missing_keys"]:
            # Otherwise a chat model would be taken, with a head of random weights.
            raise ConfigError(f"{where} has no trained reward head: {', '.join(sorted(loading['missing_keys']))}")
        if self._model.config.num_labels != 1:
            raise ConfigError(f"{where} has {self._model.config.num_labels} outputs; a reward model has one")
        if self._tokenizer.chat_template is None:
            raise ConfigError(f"{where}: its tokenizer has no chat template")
        if self._tokenizer.pad_token_id is None or self._model.config.pad_token_id is None:
            raise ConfigError(f"{where}: its tokenizer or configuration has no padding token, so it cannot batch")
        self._max_tokens = self._most_tokens(where)
        try:
            self._model.eval().to(self._part.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"{where}: device: {self._part.device!r} cannot be used: {error}") from error

    def _most_tokens(self, where: str) -> int:
        """What the model can take, where no number is given: beyond it every longer answer would fail."""
        positions = getattr(self._model.config, "max_position_embeddings", None) or self._part.max_tokens
        most = min(positions, self._tokenizer.model_max_length)
        if "max_tokens" in self._part.model_fields_set and self._part.max_tokens > most:
            raise ConfigError(f"{where}: max_tokens: the model takes {most} at most (got {self._part.max_tokens})")
        return int(min(self._part.max_tokens, most))

    def _score(self, chats: list[Chat]) -> list[float]:
        import torch

        texts = [self._tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]
        # Cut at the front: the answer is at the end.
        self._tokenizer.truncation_side = "left"
        batch = self._tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self._max_tokens,
            add_special_tokens=False,
            return_tensors="pt",
        ).to(self._model.device)
        with torch.inference_mode():
            logits = self._model(**batch).logits
        return [float(logit) for logit in logits.float().squeeze(-1).tolist()]
