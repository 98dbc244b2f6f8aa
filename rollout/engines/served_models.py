"""What the servers of one model say about it at `/v1/models`."""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.errors import ConfigError
from .http_client import EngineClient

NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Attributes:
    name: that requests give. paths: where the servers have it from, as far as they say (vLLM's and SGLang's `root`).
    max_context: tokens; the smallest of all servers, 2^30 where none says.
    """

    name: str
    paths: tuple[str, ...]
    max_context: int


async def served_model(client: EngineClient, wanted: str | None) -> ServedModel:
    """
    Args:
        wanted: the name it must have; None takes the first that the first server has.

    Raises:
        ConfigError: a server does not answer, or does not serve that model.
    """
    limits: list[int] = []
    paths: set[str] = set()
    for replica, answer in zip(client.replicas.all, await client.get_from_all("/v1/models"), strict=True):
        try:
            cards = {str(card["id"]): dict(card) for card in answer["data"]}
            wanted = wanted or next(iter(cards))
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            raise ConfigError(f"model: {replica.url}/v1/models names no models ({error!r})") from error
        if wanted not in cards:
            raise ConfigError(f"model: {replica.url} does not serve {wanted!r}; it serves: {', '.join(cards)}")
        limit = cards[wanted].get("max_model_len") or NO_LIMIT
        if not isinstance(limit, int):
            raise ConfigError(f"model: {replica.url}/v1/models: max_model_len is no number of tokens (got {limit!r})")
        limits.append(limit)
        paths |= {str(cards[wanted]["root"])} if cards[wanted].get("root") else set()
    assert wanted is not None
    return ServedModel(wanted, tuple(sorted(paths)), min(limits))
