"""Before a run: does the longest sequence fit the model, the inference server, and a GPU's share of a batch?"""

from __future__ import annotations

from typing import Any

from ..schemas.errors import ConfigError


def check_lengths(config: Any) -> None:
    """
    Raises:
        ConfigError: prompt and response together are longer than something that has to hold them. verl finds out when
            a trajectory first grows that long, which may be hours into a run.
    """
    data, parts = config.data, config.actor_rollout_ref
    lengths = {key: data[key] for key in ("max_prompt_length", "max_response_length")}
    for key, value in lengths.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"data.{key}: must be a number of tokens, at least 1 (got {value!r})")
    longest = sum(lengths.values())
    asked = f"data.max_prompt_length + data.max_response_length is {longest} tokens"
    if parts.actor.use_dynamic_bsz and str(parts.actor.strategy).startswith("fsdp"):
        for key, tokens in _micro_batches(parts).items():
            if tokens < longest:
                raise ConfigError(f"{key}: {tokens} tokens at most go into a micro-batch, and {asked}; raise it")
    holds = parts.rollout.get("max_model_len")
    if holds is not None and holds < longest:
        raise ConfigError(f"actor_rollout_ref.rollout.max_model_len: {holds}, and {asked}; raise it, or leave it null")
    seen = _positions(parts.model)
    if seen is not None and seen < longest:
        raise ConfigError(
            f"actor_rollout_ref.model.path: the model was made for {seen} tokens (max_position_embeddings), and "
            f"{asked}; lower them"
        )


def _micro_batches(parts: Any) -> dict[str, int]:
    """Key -> tokens that fit a micro-batch, which sequence parallelism shares out."""
    actor = parts.actor
    sizes = [section.get("ulysses_sequence_parallel_size") for section in (actor, actor.get("fsdp_config") or {})]
    shared = max(int(size or 1) for size in sizes)
    keys = {
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": parts.rollout.log_prob_max_token_len_per_gpu,
    }
    if actor.use_kl_loss:
        keys["actor_rollout_ref.ref.log_prob_max_token_len_per_gpu"] = parts.ref.log_prob_max_token_len_per_gpu
    return {key: int(tokens) * shared for key, tokens in keys.items()}


def _positions(model: Any) -> int | None:
    """`max_position_embeddings` as verl's servers read it; None where the model's configuration says nothing."""
    from transformers import AutoConfig

    path = model.get("hf_config_path") or model.path
    try:
        read = AutoConfig.from_pretrained(path, trust_remote_code=bool(model.get("trust_remote_code", False)))
    except Exception as error:
        raise ConfigError(
            f"actor_rollout_ref.model.path: cannot read the configuration of {path!r}: {error}"
        ) from error
    given = (model.get("override_config") or {}).get("max_position_embeddings")
    found = given or getattr(read, "max_position_embeddings", None)
    found = found or getattr(getattr(read, "text_config", None), "max_position_embeddings", None)
    return None if found is None else int(found)
