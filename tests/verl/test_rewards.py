"""Our rewards through each of verl's reward managers, under our agent loop and under verl's own."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verl.trainer.ppo.reward import get_custom_reward_fn

import rollbox.training.plugin  # noqa: F401 - registers the loop and the reward manager
from rollbox.schemas.errors import ConfigError
from rollbox.training.batch_rows import RECORD
from rollbox.training.compute_score import compute_score
from rollbox.training.scoring import last_words

from .in_process import PROMPT_LENGTH, SHIPPED, batch, call, close_tools, compose_config, make_worker

pytestmark = pytest.mark.verl

SCRIPTS: dict[str, list[str | Exception]] = {
    "right": [call("calculator", expression="3 + 4"), "The sum.\n#### 7<|im_end|>"],
    "wrong": [call("calculator", expression="3 + 4"), "#### 8<|im_end|>"],
    "leak": [call("calculator", expression="3 + 4"), "I do not know.<|im_end|>"],
    "quoting": [call("calculator", expression="#### 7"), "I do not know.<|im_end|>"],
}
KINDS = list(SCRIPTS)
SCORES = [1.1, 0.1, 0.0, 0.0]
FUNCTION = "reward.custom_reward_function.path=pkg://rollbox.training.compute_score"


async def scores(model_dir: Path, agent: str, *overrides: str) -> Any:
    config = compose_config(model_dir, SHIPPED / "calculator.yaml", "trainer.use_v1=False", *overrides)
    worker, _ = make_worker(config, SCRIPTS)
    output = await worker.generate_sequences(batch(KINDS, agent))
    await close_tools(worker)
    return output


@pytest.mark.parametrize("agent", ["rollbox_agent", "tool_agent"])
@pytest.mark.parametrize("manager", ["rollbox", "naive", "dapo", "gdpo"])
async def test_the_models_own_words_are_scored_and_the_record_survives(
    manager: str, agent: str, random_model_dir: Path
) -> None:
    overrides = [f"reward.reward_manager.name={manager}", *([FUNCTION] if manager != "rollbox" else [])]
    output = await scores(random_model_dir, agent, *overrides)
    assert output.batch["rm_scores"].sum(-1).tolist() == pytest.approx(SCORES)
    assert output.non_tensor_batch["acc"].tolist() == [1.0, 0.0, 0.0, 0.0]
    # verl puts a score on the last token that is no padding.
    attended = output.batch["attention_mask"][:, PROMPT_LENGTH:].sum(-1) - 1
    assert output.batch["rm_scores"][0, attended[0]] == pytest.approx(1.1)
    if agent == "rollbox_agent":
        assert [record["stop_reason"] for record in output.non_tensor_batch[RECORD]] == ["answered"] * 4


FILE = """
parts:
  correct: {kind: outcome, weight: 2.0}
  tools: {placement: turn}
  cheap: {kind: call_cost, weight: 0.5, smoothing: 2, only_if: {part: correct, at_least: 1}}
"""


@pytest.mark.parametrize("agent", ["rollbox_agent", "tool_agent"])
async def test_a_rewards_file_scores_whole_trajectories(agent: str, random_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "rewards.yaml").write_text(FILE)
    overrides = ["reward.reward_manager.name=rollbox", f"+rollbox.rewards.file={tmp_path / 'rewards.yaml'}"]
    output = await scores(random_model_dir, agent, *overrides)
    # cos(pi / 4) for one call; verl's own loop tells the reward manager of no calls.
    cheap = 0.5 * (0.5**0.5 if agent == "rollbox_agent" else 1.0)
    assert output.batch["rm_scores"].sum(-1).tolist() == pytest.approx([2.0 + cheap, 0.0, 0.0, 0.0])
    assert output.non_tensor_batch["acc"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert output.non_tensor_batch["correct"].tolist() == [2.0, 0.0, 0.0, 0.0]
    assert output.non_tensor_batch["cheap"].tolist() == pytest.approx([cheap, 0.0, 0.0, 0.0])
    if agent == "rollbox_agent":
        states = [record["states"] for record in output.non_tensor_batch[RECORD]]
        assert [len(hashes) for hashes in states] == [2] * 4
        assert states[0][1] == states[1][1] == states[2][1] != states[3][1]  # the tool said 7, but for the last


async def test_weights_beside_a_file_are_refused(random_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "rewards.yaml").write_text(FILE)
    file = f"+rollbox.rewards.file={tmp_path / 'rewards.yaml'}"
    with pytest.raises(Exception, match="give weights or a file, not both"):
        await scores(random_model_dir, "rollbox_agent", file, "+rollbox.rewards.tool=1")
    with pytest.raises(ConfigError, match="only the reward manager rollbox takes a rewards file"):
        await compute_score("openai/gsm8k", "#### 1", "1", file="rewards.yaml")


async def test_a_reward_function_of_ones_own_gets_the_models_last_words(random_model_dir: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "async def score(data_source, solution_str, ground_truth, extra_info, bonus):\n"
        "    calls = extra_info['rollbox']['calls']\n"
        "    return {'score': len(solution_str) + bonus, 'n_calls': len(calls), 'text': solution_str}\n"
    )
    output = await scores(
        random_model_dir,
        "rollbox_agent",
        "reward.reward_manager.name=rollbox",
        f"reward.custom_reward_function.path={own}",
        "reward.custom_reward_function.name=score",
        "+reward.custom_reward_function.reward_kwargs.bonus=100",
    )
    assert output.non_tensor_batch["text"].tolist()[0] == "The sum.\n#### 7"
    assert output.batch["rm_scores"][0].sum() == pytest.approx(100 + len("The sum.\n#### 7"))
    assert output.non_tensor_batch["n_calls"].tolist() == [1] * 4


async def test_a_reward_function_of_ones_own_that_gives_no_number_is_named(
    random_model_dir: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text("def score(data_source, solution_str, ground_truth, extra_info):\n    return float('nan')\n")
    with pytest.raises(Exception, match=r"reward\.custom_reward_function returned nan as its value"):
        await scores(
            random_model_dir,
            "rollbox_agent",
            "reward.reward_manager.name=rollbox",
            f"reward.custom_reward_function.path={own}",
            "reward.custom_reward_function.name=score",
        )


async def test_tool_rewards_are_added_where_they_are_not_at_their_tokens() -> None:
    record = {"infra_failed": False, "answer_text": "#### 7", "rewards_at_tokens": False, "tool_rewards": {"a": 2.0}}
    extra = {"tool_rewards": [0.5, None], RECORD: record}
    scored = await compute_score("openai/gsm8k", "#### 8", "7", extra, tool=0.1)
    assert scored == {"score": pytest.approx(1.35), "acc": 1.0, "format": 1.0, "tool": pytest.approx(0.25)}
    placed = {"tool_rewards": [0.5], RECORD: {**record, "rewards_at_tokens": True}}
    assert (await compute_score("openai/gsm8k", "#### 8", "7", placed))["score"] == pytest.approx(1.1)
    assert (await compute_score("openai/gsm8k", "#### 8", "7", {"tool_rewards": [0.5]}))["tool"] == 0.5


def test_a_caller_that_does_not_await_gets_the_same(random_model_dir: Path) -> None:
    override = [FUNCTION, "reward.custom_reward_function.name=compute_score_blocking"]
    config = compose_config(random_model_dir, SHIPPED / "calculator.yaml", *override)
    function = get_custom_reward_fn(config)
    assert function is not None
    assert not inspect.iscoroutinefunction(function)  # verl's manager `remote` asserts it
    arguments = {"data_source": "openai/gsm8k", "solution_str": "#### 7", "ground_truth": "7", "extra_info": {}}
    with ThreadPoolExecutor(4) as threads:  # verl's managers call it in threads
        found = list(threads.map(lambda _: function(**arguments), range(8)))
    assert found == [{"score": pytest.approx(1.1), "acc": 1.0, "format": 1.0, "tool": 0.0}] * 8
    with pytest.raises(ConfigError, match="no score for 'nope'"):
        function("nope", "#### 1", "1")  # as `main_eval` calls it


async def test_what_cannot_be_scored_is_named() -> None:
    with pytest.raises(ConfigError, match="no score for 'nope'"):
        await compute_score("nope", "#### 1", "1")
    with pytest.raises(ConfigError, match="must hold one number"):
        await compute_score("openai/gsm8k", "#### 1", "none")
    with pytest.raises(ConfigError, match="ground_truth: is missing"):
        await compute_score("openai/gsm8k", "#### 1", None)
    with pytest.raises(ConfigError, match="reward_kwargs: colour"):
        await compute_score("openai/gsm8k", "#### 1", "1", colour=1.0)


@pytest.mark.parametrize("golds", [["Lima"], np.array(["Lima"], dtype=object)], ids=["list", "numpy"])
async def test_a_ground_truth_of_verls_shape_is_read(golds: Any) -> None:
    for answer, acc in (("Lima", 1.0), ("Quito", 0.0)):
        scored = await compute_score("searchR1_nq", f"<answer>{answer}</answer>", {"target": golds})
        assert scored["acc"] == acc


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#### 7", "#### 7"),
        ("call\nuser\n<tool_response>\n7\n</tool_response>\nassistant\n#### 8", "#### 8"),
        ("<tool_response>1</tool_response>\nassistant\n<tool_response>#### 7</tool_response>\nassistant\n", ""),
    ],
)
def test_last_words(text: str, words: str) -> None:
    assert last_words(text) == words
