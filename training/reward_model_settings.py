"""What a trainer's configuration says of a reward model on verl's servers, for our two reward managers."""

from __future__ import annotations

from typing import Any

from ..schemas.errors import ConfigError
from ..schemas.reward_config import Gate, RewardConfig, RewardModelPart, RubricPart
from ..schemas.validation import validated
from .settings import read_settings

ROLLBOX = "rollbox"
HYBRID = "rollbox_hybrid"
"""Values of `reward.reward_manager.name`: rules alone, and rules with a reward model."""
OUR_FUNCTION = "pkg://rollbox.training.compute_score"
"""Value of `reward.custom_reward_function.path` under which the rules are those of `rollbox.rewards`."""

SECTION = "rollbox.reward_model"
PART = "reward_model"
_KINDS: dict[str, type[RewardModelPart | RubricPart]] = {PART: RewardModelPart, "rubric": RubricPart}
_ENGINES = ("vllm", "sglang")
_VERLS = ("model", "engine", "tokenizer", "batch_size", "device")


def check_is_asked(config: Any) -> None:
    """
    Raises:
        ConfigError: verl would score by a reward model alone, and ask no reward manager.
    """
    reward = config.reward
    if reward.reward_model.enable and reward.custom_reward_function.path is None:
        raise ConfigError(
            "reward.reward_model.enable: verl then scores by the model alone, tool output included, and reward manager "
            f"{ROLLBOX!r} is not asked; set reward.reward_manager.name={HYBRID} to have both, or naive for it alone"
        )


def check_hybrid(config: Any) -> None:
    """What a trainer's configuration must say for rules and model to be asked both.

    Raises:
        ConfigError: it does not; the message names the key.
    """
    reward = config.reward
    model = reward.reward_model
    if not model.enable or not model.model_path:
        raise ConfigError(
            f"reward.reward_manager.name={HYBRID} needs a reward model on verl's servers: set "
            "reward.reward_model.enable=True and .model_path, or take reward_manager.name=rollbox, whose rewards file "
            "may hold a part `reward_model` with a server of its own"
        )
    if not model.enable_resource_pool:
        raise ConfigError(
            "reward.reward_model.enable_resource_pool: must be True, with n_gpus_per_node and nnodes; a model on the "
            "trainer's GPUs is asked by verl alone, of whole batches without ground truths"
        )
    function = reward.custom_reward_function
    if function.path is None:
        raise ConfigError(
            f"reward.custom_reward_function.path: set it to {OUR_FUNCTION}, or to a function of your own; without one "
            "verl scores by the model alone and asks no reward manager"
        )
    if str(function.path) == OUR_FUNCTION and function.get("reward_kwargs"):
        raise ConfigError(
            f"reward.custom_reward_function.reward_kwargs: under {HYBRID} weights go into rollbox.rewards"
        )
    model_part(config, "127.0.0.1:1")


def model_part(config: Any, address: str) -> tuple[RewardConfig, Gate | None]:
    """The rewards that consist of the model's part alone, and the gate before it, which looks at the rules' parts.

    Args:
        address: host:port of verl's router.

    Raises:
        ConfigError: a key of the `rollbox.reward_model` section is unknown or its value wrong.
    """
    from omegaconf import OmegaConf

    model = config.reward.reward_model
    section = dict(read_settings(config).reward_model or {})
    kind = section.setdefault("kind", PART)
    if kind not in _KINDS:
        raise ConfigError(f"{SECTION}.kind: must be one of {', '.join(_KINDS)} (got {kind!r})")
    for key in _VERLS:
        if key in section:
            raise ConfigError(f"{SECTION}.{key}: leave it out; reward.reward_model says it")
    gate = section.pop("only_if", None)
    service = {**(section.get("service") or {}), "url": f"http://{address}"}
    served: dict[str, Any] = {"model": str(model.model_path), "service": service}
    if kind == PART:
        engine = OmegaConf.select(model, "rollout.name", throw_on_missing=False)
        if engine not in _ENGINES:
            raise ConfigError(
                f"reward.reward_model.rollout.name: must be one of {', '.join(_ENGINES)} (got {engine!r})"
            )
        served |= {"engine": engine, "tokenizer": str(model.model_path)}
    part = validated(_KINDS[kind], {**section, **served}, SECTION)
    return RewardConfig(parts={PART: part}), None if gate is None else validated(Gate, gate, f"{SECTION}.only_if")
