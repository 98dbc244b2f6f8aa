"""Our algorithms in verl's own registries, and through its own computation of advantages and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.core_algos import (
    POLICY_LOSS_REGISTRY,
    get_adv_estimator_fn,
    get_policy_loss_fn,
)
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.reward_score import search_r1_like_qa_em
from verl.utils.torch_functional import masked_whiten

from rollbox.rewards.search_qa import exact_match, normalised
from rollbox.schemas.errors import ConfigError
from rollbox.training.algorithms.groups import whitened
from rollbox.training.algorithms.register import ESTIMATORS, LOSSES, register_algorithms
from rollbox.training.where import origins

pytestmark = pytest.mark.verl

REWARDS = torch.tensor([[0, 0.5, 0, 0, 1.0], [0, 0.0, 0, 0, 0.0], [0, 0.2, 0, 0, 1.0], [0, 0.1, 0, 0, 0.0]])
MASK = torch.tensor([[1, 1, 0, 1, 1]] * 4)


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    register_algorithms()
    register_algorithms()


def test_a_taken_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICY_LOSS_REGISTRY, "rollbox_turn_clip", print)
    with pytest.raises(ConfigError, match="the name 'rollbox_turn_clip' is taken by"):
        register_algorithms()


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("v1", [False, True], ids=["legacy", "v1"])
def test_an_estimator_computes_a_batch_of_verls(name: str, v1: bool) -> None:
    assert get_adv_estimator_fn(name) is ESTIMATORS[name]
    data = DataProto.from_dict(
        tensors={"token_level_rewards": REWARDS.clone(), "response_mask": MASK.clone()},
        non_tensors={"uid": np.array(["a", "a", "b", "b"], dtype=object)},
    )
    config = OmegaConf.create({"norm_adv_by_std_in_grpo": True, "rollbox": {"turn_weight": 0.5}})
    if v1:
        keys = ["a_0_0", "a_1_0", "b_0_0", "b_1_0"]
        data = compute_advantage_for_multi_trajectories(data, keys, adv_estimator=name, config=config)
    else:
        data = compute_advantage(data, adv_estimator=name, config=config)
    advantages = data.batch["advantages"]
    assert advantages.shape == MASK.shape
    assert (advantages[:, 2] == 0).all()
    assert advantages[0, 4] > 0 > advantages[1, 4]
    assert not torch.equal(advantages[:, 0], advantages[:, 4])  # turns differ
    data.batch["returns"].shape  # noqa: B018 - verl reads it


def test_whitening_is_verls() -> None:
    values, mask = torch.randn(4, 9), (torch.rand(4, 9) > 0.3).float()
    assert torch.allclose(whitened(values, mask), masked_whiten(values, mask) * mask, atol=1e-5)


def loss_of(name: str, log_prob: torch.Tensor, advantages: torch.Tensor, **config: Any) -> torch.Tensor:
    from verl.workers.config import FSDPActorConfig

    actor = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        **config,
    )
    loss, metrics = get_policy_loss_fn(name)(
        old_log_prob=torch.zeros_like(log_prob),
        log_prob=log_prob,
        advantages=advantages,
        response_mask=MASK.float(),
        loss_agg_mode="token-mean",
        config=actor,
        rollout_is_weights=None,
    )
    assert set(metrics) == {"actor/pg_clipfrac", "actor/ppo_kl"}
    return loss


def test_the_turn_loss_is_its_formula_and_its_gradient_stops_where_it_is_clipped() -> None:
    log_prob = torch.tensor([[0.1, 0.2, torch.inf, 0.5, 0.7]] * 4, requires_grad=True)
    advantages = torch.tensor([[1.0, 1.0, 0, -1.0, -1.0]] * 4)
    loss = loss_of("rollbox_turn_clip", log_prob, advantages)
    first, second = np.exp(0.15), np.exp(0.6)
    expected = (-2 * min(first, 1.28) + 2 * max(second, 0.8)) / 4
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_prob.grad is not None
    assert (log_prob.grad[:, 2] == 0).all()
    assert (log_prob.grad[:, :2] < 0).all()
    assert (log_prob.grad[:, 3:] > 0).all()
    far = torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.0]] * 4, requires_grad=True)
    loss_of("rollbox_turn_clip", far, advantages).backward()  # type: ignore[no-untyped-call]
    assert far.grad is not None
    assert (far.grad[:, :2] == 0).all()


def test_two_real_steps_with_our_estimator_and_loss() -> None:
    """A tiny policy learns which of two tokens is paid for, by verl's own pieces put together."""
    torch.manual_seed(0)
    policy = torch.nn.Linear(1, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=5.0)
    chances = []
    for _ in range(3):
        log_probs = torch.log_softmax(policy(torch.ones(4, 5, 1)), dim=-1)
        chances.append(log_probs[0, 0, 1].exp().item())
        actions = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 1], [0, 0, 0, 0, 0]])
        chosen = log_probs.gather(-1, actions[..., None]).squeeze(-1)
        data = DataProto.from_dict(
            tensors={"token_level_rewards": REWARDS.clone(), "response_mask": MASK.clone()},
            non_tensors={"uid": np.array(["a", "a", "b", "b"], dtype=object)},
        )
        advantages = compute_advantage(data, adv_estimator="rollbox_gigpo", config=OmegaConf.create({})).batch[
            "advantages"
        ]
        from verl.workers.config import FSDPActorConfig

        config = FSDPActorConfig(strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
        loss, _ = LOSSES["rollbox_turn_clip"](chosen.detach(), chosen, advantages, MASK.float(), "token-mean", config)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert chances == sorted(chances)
    assert chances[-1] > chances[0] + 0.05


@settings(deadline=None)
@given(st.text(alphabet="aA the.,!-5 \n", max_size=20), st.text(alphabet="aA the.,!-5", min_size=1, max_size=20))
def test_search_r1_scores_as_verls(text: str, gold: str) -> None:
    if not gold.strip():
        return
    assert normalised(text) == search_r1_like_qa_em.normalize_answer(text)
    if normalised(text):
        theirs = search_r1_like_qa_em.em_check(text.strip(), [gold])
        assert exact_match(f"<answer>{text}</answer>", f'["{gold}"]').value == theirs


@pytest.mark.parametrize(
    ("name", "kind", "key"),
    [
        ("rollbox_gigpo", "advantage estimator", "algorithm.adv_estimator=rollbox_gigpo"),
        ("rollbox_turn_clip", "policy loss", "actor_rollout_ref.actor.policy_loss.loss_mode=rollbox_turn_clip"),
        ("naive", "reward manager", "reward.reward_manager.name=naive"),
        ("tool_agent", "agent loop", "agent_name"),
        ("hermes", "tool parser", "multi_turn.format=hermes"),
    ],
)
def test_where_a_name_of_verls_comes_from(name: str, kind: str, key: str) -> None:
    [origin] = [origin for origin in origins(name) if origin.kind == kind]
    assert key in origin.selected_by
    assert origin.place


def test_a_module_that_verl_cannot_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "no_such_module")
    with pytest.raises(ConfigError, match=r"with VERL_USE_EXTERNAL_MODULES=no_such_module: ModuleNotFoundError"):
        list(origins("grpo"))


def test_the_worked_example_of_the_docs() -> None:
    import re
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    [code] = [
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if block.startswith("# my_algo.py")
    ]
    exec(compile(code, "my_algo.py", "exec"), {"__name__": "my_algo"})
    index = np.array(["a", "a", "b", "b"], dtype=object)
    advantages, _ = get_adv_estimator_fn("my_best_of_group")(REWARDS, MASK, index=index)
    assert advantages[0, 0] == advantages[2, 0] > 0
    assert advantages[1, 0] == advantages[3, 0] < 0
    assert (advantages[:, 2] == 0).all()
