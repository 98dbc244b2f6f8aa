"""Before a run: every row can be scored, and the user's score functions do what their fixtures say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..rewards.compose import RewardComposition
from ..rewards.registry import ScoreEntry
from ..rewards.sandbox_access import ScoringSandbox
from ..rewards.score import as_score
from ..rewards.trajectory import rewards_of
from ..rewards.verify import verify
from ..schemas.errors import ConfigError
from ..user_functions.own_threads import OwnThreads
from .check_code_sandbox import check_code_sandbox, check_scoring_sandbox
from .check_data import DataRow
from .reward_model_settings import HYBRID, OUR_FUNCTION, ROLLBOX, check_hybrid, check_is_asked
from .settings import TrainingSettings

_ANSWER = "#### 1"
_TRIED_S = 120.0


def check_reward_settings(config: Any, settings: TrainingSettings) -> None:
    """
    Raises:
        ConfigError: the reward's settings do not go together.
    """
    model, manager = config.reward.reward_model, config.reward.reward_manager.name
    if settings.rewards.tool and model.enable and not model.enable_resource_pool:
        raise ConfigError(
            "rollbox.rewards.tool: with a reward model on the trainer's GPUs verl computes the scores anew, without "
            "the tools' rewards; set reward.reward_model.enable_resource_pool=True or rollbox.rewards.tool=0"
        )
    if manager == HYBRID:
        check_hybrid(config)
    elif manager == ROLLBOX:
        check_is_asked(config)
    if settings.reward_model is not None and manager != HYBRID:
        raise ConfigError(f"rollbox.reward_model: only reward.reward_manager.name={HYBRID} reads it (got {manager})")


async def check_rewards(config: Any, settings: TrainingSettings, rows: Sequence[DataRow]) -> list[str]:
    """The reward of each row can be computed, and functions of the user's own are verified.

    Returns:
        Lines for the user.

    Raises:
        ConfigError: a row cannot be scored, or a function fails.
    """
    function, manager = config.reward.custom_reward_function, config.reward.reward_manager.name
    if function.path is not None and (manager != HYBRID or str(function.path) != OUR_FUNCTION):
        return [*await check_code_sandbox(config), await _try_reward_function(config, rows)]
    if manager not in (ROLLBOX, HYBRID):
        return [*await check_code_sandbox(config), f"reward: verl's manager {manager!r}, not tried"]
    samples = [row.sample for row in rows]
    try:
        rewards = rewards_of(settings.rewards.path)
        rewards.check_samples(samples)
    except ConfigError as error:
        raise ConfigError(f"data: {error}") from error
    sources = sorted({sample.data_source for sample in samples})
    line = f"reward: {len(samples)} rows can be scored ({', '.join(sources)})"
    judged = await check_scoring_sandbox(rewards.entries_used(sources), rewards.config.sandbox_url)
    entries = rewards.entries_of_user(sources)
    return [line, *judged, *([await _verified(rewards, entries)] if entries else [])]


async def _verified(rewards: RewardComposition, entries: Sequence[ScoreEntry]) -> str:
    """`rollbox reward verify` as a gate."""
    passed: dict[str, int] = {}
    async with ScoringSandbox(rewards.config.sandbox_url) as sandbox:
        sandbox.use()
        async for finding in verify(entries):
            if finding.problem:
                entry = next(entry for entry in entries if entry.pattern == finding.pattern)
                raise ConfigError(
                    f"reward: {entry.described} fails its check {finding.check!r}: {finding.problem}; mend the "
                    f"function or its fixtures, and see all with: rollbox reward verify --module {entry.file}"
                )
            passed[finding.pattern] = passed.get(finding.pattern, 0) + 1
    return f"reward functions verified: {', '.join(f'{name} ({number} checks)' for name, number in passed.items())}"


async def _try_reward_function(config: Any, rows: Sequence[DataRow]) -> str:
    """Score an answer to the first row of each data source, and to its first row without a ground truth."""
    from verl.trainer.ppo.reward import get_custom_reward_fn

    where = f"{config.reward.custom_reward_function.name} of {config.reward.custom_reward_function.path}"
    for row in rows:
        if "ground_truth" not in (row.columns.get("reward_model") or {}):
            raise ConfigError(
                f"data: row {row.name} has no reward_model.ground_truth, which verl's reward managers and ours read; "
                "add it, empty where the reward function needs none"
            )
    if config.reward.reward_model.enable:
        return f"reward: {where}, not tried, because it may ask the reward model"
    try:
        function = get_custom_reward_fn(config)
    except Exception as error:
        raise ConfigError(f"reward: {where} cannot be loaded: {type(error).__name__}: {error}") from error
    chosen: dict[tuple[str, bool], DataRow] = {}
    for row in rows:
        chosen.setdefault((row.sample.data_source, row.sample.ground_truth is None), row)
    scores = {name: await _tried(function, row, where) for (name, _), row in chosen.items()}
    told = ", ".join(f"{score:g} ({name})" for name, score in scores.items())
    return f"reward: {where} gives an answer of {_ANSWER!r} {told}"


async def _tried(function: Any, row: DataRow, where: str) -> float:
    arguments: dict[str, Any] = {
        "data_source": row.sample.data_source,
        "solution_str": _ANSWER,
        "ground_truth": row.columns["reward_model"]["ground_truth"],
        "extra_info": {**row.sample.extra_info, "tool_rewards": [], "turn_scores": [], "num_turns": 2},
    }
    limit = asyncio.timeout(_TRIED_S)
    try:
        async with limit:
            result = await OwnThreads().call("it", partial(function, **arguments))
        given = result["score"] if isinstance(result, dict) else result
        return as_score(given, "it").value
    except (Exception, SystemExit) as error:
        told = f"not ended within {_TRIED_S:g} s" if limit.expired() else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"reward: {where} cannot score row {row.name} ({row.sample.data_source}): {told}; "
            "mend it, or start with --no-preflight where it needs what only a real trajectory has"
        ) from error
