"""The reward manager `rollbox`: scores the model's own last words, and leaves failed trajectories unscored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from ..rewards.registry import AT_A_TIME, TIMEOUT_S
from ..rewards.score import as_score
from ..schemas.trajectory import Rewards
from ..user_functions.own_threads import OwnThreads
from .batch_rows import RECORD
from .reward_model_settings import check_is_asked
from .scoring import answer_scores, last_words, masked_score, tool_reward
from .settings import read_settings
from .shared_rewards import SharedRewards


@dataclass(frozen=True, slots=True)
class Ruled:
    """What the rules say of one trajectory.

    Attributes:
        score: for the last token. info: verl's `reward_extra_info`.
        raw: parts before weighting. answer: the model's last words; None for a trajectory that is left unscored.
    """

    score: float
    info: dict[str, Any]
    raw: Mapping[str, float]
    answer: str | None


class RollboxRewardManager(RewardManagerBase):
    """Outcome and format by `data_source`, weighted by the `rollbox.rewards` section, or what its rewards file says.

    With a rewards file the agent loop has scored the trajectory already, and what lies at earlier tokens is taken off
    here; of a trajectory that another loop ran, the last words are scored.

    A `reward.custom_reward_function` takes their place; it is given the model's last words as `solution_str` and
    verl's extra fields, our record among them, in `extra_info`.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self._check(config)
        self._weights = read_settings(config).rewards
        self._rewards = SharedRewards.of_settings(self._weights)
        # verl hands over its own default where none is configured.
        self._custom = compute_score if self._has_own_function(config) else None
        self._threads = OwnThreads(AT_A_TIME)
        self._router: dict[str, Any] = {}
        if reward_router_address is not None:
            self._router = {
                "reward_router_address": reward_router_address,
                "reward_model_tokenizer": reward_model_tokenizer,
            }

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Score one trajectory (the last of `data`).

        Returns:
            `reward_score`, and `reward_extra_info` with the same keys for every trajectory.

        Raises:
            ConfigError: no score for the data source, or no readable ground truth.
            InfraError: a `reward.custom_reward_function` did not end within ten minutes.
        """
        ruled = await self._ruled(data[-1:][0])
        return {"reward_score": ruled.score, "reward_extra_info": ruled.info}

    def _check(self, config: Any) -> None:
        check_is_asked(config)

    def _has_own_function(self, config: Any) -> bool:
        return config.reward.custom_reward_function.path is not None

    async def _ruled(self, item: Any) -> Ruled:
        row = item.non_tensor_batch
        extra_fields = dict(row.get("tool_extra_fields") or {})
        record = extra_fields.get(RECORD)
        if self._rewards.of_file and self._custom is None:
            return await self._by_file(item, record)
        failed = record is not None and bool(record["infra_failed"])
        if failed and self._custom is None:
            return _with_tools(dict(masked_score()), 0.0, {}, None)
        answer = record["answer_text"] if record is not None else await self._last_words(item)
        scored, raw = await self._score(row, answer, extra_fields)
        tools = tool_reward(extra_fields, record, self._weights.tool)
        return _with_tools(scored, tools, raw, None if failed else answer)

    async def _by_file(self, item: Any, record: Any) -> Ruled:
        row = item.non_tensor_batch
        if record is not None:
            answer = record["answer_text"]
            rewards = None if record["rewards"] is None else Rewards.model_validate(record["rewards"])
        else:
            answer, truth = await self._last_words(item), row["reward_model"]["ground_truth"]
            rewards = await self._rewards.score_text(answer, row["data_source"], truth, row.get("extra_info"))
        info = self._rewards.info(rewards)
        if rewards is None:
            return Ruled(0.0, info, {}, None)
        elsewhere = 0.0
        if record is not None and record["rewards_at_tokens"]:
            elsewhere = sum(reward for _, reward in record["token_rewards"])
        return Ruled(rewards.total - elsewhere, info, rewards.raw, answer)

    async def _score(
        self, row: Any, answer: str, extra_fields: dict[str, Any]
    ) -> tuple[dict[str, Any], Mapping[str, float]]:
        """(verl's dictionary of a score, parts before weighting)."""
        data_source, ground_truth = row["data_source"], row["reward_model"]["ground_truth"]
        if self._custom is None:
            rewards = await self._rewards.score_text(answer, data_source, ground_truth, row.get("extra_info"))
            return answer_scores(rewards), {} if rewards is None else rewards.raw
        arguments = {
            "data_source": data_source,
            "solution_str": answer,
            "ground_truth": ground_truth,
            "extra_info": {**(row.get("extra_info") or {}), **extra_fields, "num_turns": row.get("__num_turns__")},
            **self._router,
        }
        called = partial(self._custom, **arguments)
        result = await self._threads.call("reward.custom_reward_function", called, TIMEOUT_S)
        is_named = isinstance(result, dict) and "score" in result
        value = as_score(result["score"] if is_named else result, "reward.custom_reward_function").value
        scored = {**result, "score": value} if is_named else {"score": value, "acc": value}
        return scored, {name: float(value) for name, value in scored.items() if isinstance(value, bool | int | float)}

    async def _last_words(self, item: Any) -> str:
        response = item.batch["responses"]
        ids = response[: int(item.batch["attention_mask"][-response.shape[-1] :].sum())]
        text = await self.loop.run_in_executor(None, lambda: self.tokenizer.decode(ids, skip_special_tokens=True))
        return last_words(str(text))


def _with_tools(scored: dict[str, Any], tools: float, raw: Mapping[str, float], answer: str | None) -> Ruled:
    total = scored["score"] + tools
    return Ruled(total, {**scored, "score": total, "tool": tools}, raw, answer)
