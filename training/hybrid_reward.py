"""The reward manager `rollbox_hybrid`: what the rules say, plus what a reward model on verl's own servers says.

Which function scores a sample is chosen as in `rollbox`, by its data source; the model's part of the reward has a
weight, a gate, a range and data sources of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..rewards.compose import RewardComposition
from ..rewards.trajectory import trajectory_of_text
from ..schemas.errors import ConfigError
from ..schemas.trajectory import Rewards
from .reward_manager import RollboxRewardManager, Ruled
from .reward_model_settings import OUR_FUNCTION, PART, SECTION, check_hybrid, model_part
from .shared_rewards import SharedRewards
from .verl_rows import sample_of


class HybridRewardManager(RollboxRewardManager):
    """Adds the `rollbox.reward_model` part to what `RollboxRewardManager` gives, on the last token.

    verl's router spreads the requests over its servers, and these make batches of what waits. A trajectory whose model
    score fails is lost to its group and counted; it is never scored 0.

    Raises:
        ConfigError: see `check_hybrid`.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **router: Any) -> None:
        super().__init__(config, tokenizer, compute_score, **router)
        address = router.get("reward_router_address")
        if address is None:
            raise ConfigError("reward.reward_model: verl started no server of the model, so it cannot be asked")
        rewards, self._gate = model_part(config, address)
        self._model = SharedRewards(RewardComposition(rewards))
        self._check_gate()

    async def run_single(self, data: Any) -> dict[str, Any]:
        """See `RollboxRewardManager.run_single`; `reward_extra_info` gains `reward_model`, after weighting, and
        `reward_model_raw`.

        Raises:
            ConfigError: as there, or the model's server refuses the request. InfraError: it failed.
        """
        item = data[-1:][0]
        ruled = await self._ruled(item)
        rewards = await self._ask(item.non_tensor_batch, ruled)
        added = 0.0 if rewards is None else rewards.total
        info = {
            **ruled.info,
            "score": ruled.info["score"] + added,
            "reward_model": None if rewards is None else added,
            "reward_model_raw": None if rewards is None else rewards.raw.get(PART),
        }
        return {"reward_score": ruled.score + added, "reward_extra_info": info}

    def _check(self, config: Any) -> None:
        check_hybrid(config)

    def _has_own_function(self, config: Any) -> bool:
        return str(config.reward.custom_reward_function.path) != OUR_FUNCTION

    def _check_gate(self) -> None:
        names = self._rewards.part_names
        if self._gate is not None and self._custom is None and self._gate.part not in names:
            raise ConfigError(
                f"{SECTION}.only_if.part: there is no part {self._gate.part!r}; there are: {', '.join(names)}"
            )

    async def _ask(self, row: Any, ruled: Ruled) -> Rewards | None:
        if ruled.answer is None or (self._gate is not None and not self._gate.is_open(self._measured(ruled.raw))):
            return None
        return await self._model.score(trajectory_of_text(sample_of(row), ruled.answer))

    def _measured(self, raw: Mapping[str, float]) -> float:
        """The part that the gate looks at; one of several values, such as that of tools, is their sum."""
        assert self._gate is not None
        name = self._gate.part
        found = [raw[name]] if name in raw else [value for key, value in raw.items() if key.startswith(f"{name}/")]
        if not found and self._custom is not None:
            raise ConfigError(f"{SECTION}.only_if.part: the reward function returns no number {name!r}")
        return sum(found)
