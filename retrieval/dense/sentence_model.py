"""An embedding model in this process, by sentence-transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...schemas.errors import ConfigError, InfraError
from .embedder import Vectors, known_prefixes, unit_rows


class SentenceModel:
    """Embeds in a thread of its own, one batch at a time: forward passes side by side only take each other's cores.

    Nothing is downloaded, and no code that comes with a model is run.

    Args:
        model: a folder, or a name whose files are in the Hugging Face cache. device: None takes a GPU where there is
            one.

    Raises:
        ConfigError: it is neither, or cannot be loaded; or sentence-transformers is not installed.
    """

    def __init__(self, model: str, device: str | None = None, batch_size: int = 32) -> None:
        self._name = model
        self._batch_size = batch_size
        self._model = _load(model, device)
        self.prefixes = _own_prefixes(self._model) or known_prefixes(model)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")

    async def embed(self, texts: Sequence[str], timeout_s: float) -> tuple[Vectors, int]:
        """
        Raises:
            InfraError: the model failed, such as for want of memory, or took longer than `timeout_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._in_batches(list(texts)), 0
        except TimeoutError:
            raise InfraError(
                f"embedding model {self._name}: {len(texts)} texts took longer than {timeout_s:.3g} s"
            ) from None
        except (RuntimeError, ValueError) as error:
            raise InfraError(f"embedding model {self._name}: {type(error).__name__}: {error}"[:500]) from error

    async def aclose(self) -> None:
        """Nothing to give back: the thread belongs to no event loop, and ends with the object."""

    async def _in_batches(self, texts: list[str]) -> Vectors:
        """Each batch is a job of its own: a thread cannot be interrupted, but what nobody waits for is not begun."""
        loop = asyncio.get_running_loop()
        # The longest first: texts of one batch are filled up to the longest of them.
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        parts = []
        for start in range(0, len(texts), self._batch_size):
            batch = [texts[place] for place in order[start : start + self._batch_size]]
            parts.append(await loop.run_in_executor(self._thread, self._embed, batch))
        vectors = np.concatenate(parts)
        vectors[order] = vectors.copy()
        return vectors

    def _embed(self, texts: list[str]) -> Vectors:
        # Without `prompt` the model's default one would come on top of the caller's prefix.
        options = {"batch_size": self._batch_size, "convert_to_numpy": True, "show_progress_bar": False, "prompt": ""}
        return unit_rows(self._model.encode(texts, **options))


def _own_prefixes(model: Any) -> tuple[str, str] | None:
    """The prompts that come with the model; None where it has none for queries and passages."""
    prompts: dict[str, str] = model.prompts or {}
    query = prompts.get("query", "")
    passage = prompts.get("document", "") or prompts.get("passage", "")
    return (query, passage) if query or passage else None


def _load(model: str, device: str | None) -> Any:
    where = local_files(model)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(
            "embedding models in this process need sentence-transformers: pip install 'rollbox[dense]'"
        ) from error
    try:
        # Even where the network is there: a server that starts must not depend on a hub, or fetch another revision.
        with _no_progress_bar():
            return SentenceTransformer(where, device=device, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ConfigError(f"embedding model {model}: cannot be loaded: {error}"[:500]) from error


def local_files(model: str) -> str:
    """The folder, or the name when its files are in the cache. Known before the imports, which take ten seconds.

    Raises:
        ConfigError: it is neither.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder)
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        known = isinstance(try_to_load_from_cache(model, "config.json"), str)
    except (ImportError, HFValidationError):
        known = False
    if known:
        return model
    raise ConfigError(
        f"embedding model {model!r}: is no folder, and is not in the Hugging Face cache; nothing is downloaded here: "
        f"run `hf download {model}` first, or give a folder"
    )


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
