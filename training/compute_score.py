"""Our rewards as verl's reward function: `reward.custom_reward_function.path=pkg://rollbox.training.compute_score`.

verl's reward managers, 0.7.1 to 0.9.1, await a coroutine. Manager `remote` and `main_eval` call plain functions only:
for these set `reward.custom_reward_function.name=compute_score_blocking`.
"""

from __future__ import annotations

import asyncio
import threading
from functools import cache
from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.validation import validated
from .batch_rows import RECORD
from .scoring import answer_scores, last_words, masked_score, tool_reward
from .settings import Weights
from .shared_rewards import SharedRewards

_made: dict[tuple[asyncio.AbstractEventLoop, str], SharedRewards] = {}


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    **weights: Any,
) -> dict[str, Any]:
    """Score a trajectory under one of verl's reward managers, in verl's signature.

    Tool rewards are added where the reward manager passes them on (`naive`, not `dapo` or `gdpo`) and they are not
    at their tokens already.

    Args:
        solution_str: the decoded response, tool output included; only what follows that is read.
        weights: of the parts, by `+reward.custom_reward_function.reward_kwargs.correct=1.0` and so on.

    Returns:
        `score`, and the parts `acc`, `format` (before weighting) and `tool` (after).

    Raises:
        ConfigError: a weight, the data source or the ground truth is wrong.
    """
    extra = extra_info or {}
    if "reward_router_address" in weights:
        raise ConfigError(
            "reward.reward_model: compute_score asks no model; set reward.reward_manager.name=rollbox_hybrid"
        )
    chosen = validated(Weights, weights, "reward_kwargs")
    record = extra.get(RECORD)
    if record is not None and record["infra_failed"]:
        return {**masked_score(), "tool": 0.0}
    answer = record["answer_text"] if record is not None else last_words(solution_str)
    scored = answer_scores(await _shared(chosen).score_text(answer, data_source, ground_truth, extra))
    tools = tool_reward(extra, record, chosen.tool)
    return {**scored, "score": scored["score"] + tools, "tool": tools}


def compute_score_blocking(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """`compute_score` for callers that do not await. It must not be called on an event loop, which it would block."""
    return asyncio.run_coroutine_threadsafe(compute_score(*args, **kwargs), _own_loop()).result()


@cache
def _own_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread that ends with the process: what scores have opened lives on between calls."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rollbox-scores", daemon=True).start()
    return loop


def _shared(weights: Weights) -> SharedRewards:
    if weights.file is not None:
        raise ConfigError("reward_kwargs.file: only the reward manager rollbox takes a rewards file")
    key = (asyncio.get_running_loop(), weights.model_dump_json())
    if key not in _made:
        _made[key] = SharedRewards.of_settings(weights)
    return _made[key]
