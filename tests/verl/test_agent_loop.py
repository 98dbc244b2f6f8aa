"""`rollbox_agent` in verl's real agent-loop worker, with verl's real loader, reward manager and batch."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import rollbox.training.plugin  # noqa: F401 - registers the loop and the reward manager
from rollbox.rewards.trajectory import RewardWeights, score_trajectory
from rollbox.schemas.call_record import CallRecord
from rollbox.schemas.errors import ConfigError
from rollbox.schemas.trajectory import Sample, StopReason, Trajectory
from rollbox.training.batch_rows import RECORD
from rollbox.training.verl_rows import sample_of, selected_tools

from ..tools.counting_tool import CountingTool
from .faulty_tools import UnreleasableTool, double
from .in_process import PROMPT_LENGTH, SHIPPED, ScriptedClient, batch, call, close_tools, compose_config, make_worker

pytestmark = pytest.mark.verl

SEVEN = "#### 7<|im_end|>"
ENDLESS = '<tool_call>\n{"name": "count", "arguments": {"mode": "' + "x" * 10_000
SCRIPTS: dict[str, list[str | Exception]] = {
    "plain": [SEVEN],
    "calculator": [call("calculator", expression="17 * 23"), SEVEN],
    "state": [call("count"), call("count"), "#### 2<|im_end|>"],
    "parallel": [(call("count").removesuffix("<|im_end|>") + "\n") * 4 + "<|im_end|>", SEVEN],
    "leak": [call("calculator", expression="3 + 4"), "I do not know.<|im_end|>"],
    "broken": ['<tool_call>\n{"name": "count", "arguments": {oops\n</tool_call><|im_end|>', SEVEN],
    "unknown": [call("counter"), SEVEN],
    "raises": [call("count", mode="raise"), SEVEN],
    "hangs": [call("count", mode="hang"), SEVEN],
    "garbage": [call("count", mode="garbage"), SEVEN],
    "pair": [call("count", mode="pair"), SEVEN],
    "nan": [call("count", mode="nan"), SEVEN],
    "unreleasable": [call("keep"), SEVEN],
    "never_stops": [call("count", step=0)],
    "endless_json": [ENDLESS],
    "bad_json_10k": [ENDLESS[:800] + "\n</tool_call><|im_end|>", SEVEN],
    "overflow": [call("count", mode="long")] * 2,
    "engine_down": [ConnectionError("no server")],
    "engine_lost": [call("count"), ConnectionError("no server")],
}
INFRA = {"raises", "hangs", "garbage", "pair", "nan", "engine_down", "engine_lost"}


@pytest.fixture(scope="module")
def tools_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tools = yaml.safe_load((SHIPPED / "calculator.yaml").read_text())["tools"]
    for tool_class, name in ((CountingTool, "count"), (UnreleasableTool, "keep")):
        schema = json.loads(json.dumps(CountingTool.default_schema))
        schema["function"]["name"] = name
        class_name = f"{tool_class.__module__}.{tool_class.__qualname__}"
        tools.append({"class_name": class_name, "config": {"type": "native"}, "tool_schema": schema})
    file = tmp_path_factory.mktemp("tools") / "tools.yaml"
    file.write_text(yaml.safe_dump({"tools": tools}))
    return file


@pytest.fixture(scope="module")
def worker(random_model_dir: Path, tools_file: Path) -> tuple[Any, ScriptedClient]:
    config = compose_config(
        random_model_dir,
        tools_file,
        "trainer.use_v1=False",
        "reward.reward_manager.name=rollbox",
        "+rollbox.call_timeout_s=0.3",
        "+rollbox.max_turns=6",
        "+rollbox.max_calls_per_turn=2",
        "+rollbox.rewards.tool=0.1",
    )
    return make_worker(config, SCRIPTS)


@pytest.fixture(scope="module")
def rolled(worker: tuple[Any, ScriptedClient]) -> dict[str, dict[str, Any]]:
    """One batch with every kind; what came out for each."""
    agent_worker, _ = worker
    kinds = list(SCRIPTS)

    async def roll() -> Any:
        output = await agent_worker.generate_sequences(batch(kinds, "rollbox_agent"))
        await close_tools(agent_worker)
        return output

    output = asyncio.run(roll())
    found: dict[str, dict[str, Any]] = {}
    for i, kind in enumerate(kinds):
        attended = output.batch["attention_mask"][i, PROMPT_LENGTH:].bool()
        found[kind] = {
            "ids": output.batch["responses"][i][attended].tolist(),
            "mask": output.batch["response_mask"][i][attended].tolist(),
            "padding_mask": output.batch["response_mask"][i][~attended].tolist(),
            "logprobs": output.batch["rollout_log_probs"][i][attended].tolist(),
            "total": output.batch["rm_scores"][i].sum().item(),
            **{key: values[i] for key, values in output.non_tensor_batch.items()},
        }
    return found


def records(row: dict[str, Any]) -> list[CallRecord]:
    return [CallRecord.model_validate(record) for record in row[RECORD]["calls"]]


@pytest.mark.parametrize("kind", sorted(set(SCRIPTS) - INFRA))
def test_mask_one_is_exactly_what_was_sampled(
    kind: str, rolled: dict[str, dict[str, Any]], worker: tuple[Any, ScriptedClient]
) -> None:
    row, (_, client) = rolled[kind], worker
    sampled = [token for _, ids in client.said[kind] for token in ids]
    assert [token for token, bit in zip(row["ids"], row["mask"], strict=True) if bit] == sampled
    assert [p for p, bit in zip(row["logprobs"], row["mask"], strict=True) if bit] == [-0.5] * len(sampled)
    assert not any(row["padding_mask"])
    # What the server was asked to continue is exactly what lies before in the batch.
    for prompt, ids in client.said[kind]:
        whole = client.said[kind][0][0] + row["ids"]
        assert whole[: len(prompt) + len(ids)] == prompt + ids


@pytest.mark.parametrize("kind", sorted(INFRA))
def test_a_fault_of_ours_masks_the_trajectory_and_is_named(kind: str, rolled: dict[str, dict[str, Any]]) -> None:
    row = rolled[kind]
    assert not any(row["mask"])
    assert row["ids"]
    assert row[RECORD]["infra_failed"]
    assert row[RECORD]["error"]
    assert (row["total"], row["acc"]) == (0.0, None)
    assert row["min_global_steps"] is not None


@pytest.mark.parametrize("kind", sorted(set(SCRIPTS) - INFRA))
def test_what_the_model_does_wrong_is_not_masked(kind: str, rolled: dict[str, dict[str, Any]]) -> None:
    assert any(rolled[kind]["mask"])
    assert not rolled[kind][RECORD]["infra_failed"]
    assert rolled[kind]["acc"] in (0.0, 1.0)


def test_state_lives_for_the_trajectory_and_its_reward_is_asked_once(rolled: dict[str, dict[str, Any]]) -> None:
    row = rolled["state"]
    assert [record.tool for record in records(row)] == ["count", "count"]
    assert row[RECORD]["tool_rewards"] == {"count": 2.0}
    assert row["tool_rewards"] == [0.5, 0.5]
    assert row["turn_scores"] == [0.5, 0.5, 0.0]
    assert row["__num_turns__"] == 6


def test_weight_versions_are_the_first_and_the_last(rolled: dict[str, dict[str, Any]]) -> None:
    assert (rolled["state"]["min_global_steps"], rolled["state"]["max_global_steps"]) == (0, 2)


def test_calls_beyond_the_limit_are_answered(
    rolled: dict[str, dict[str, Any]], worker: tuple[Any, ScriptedClient]
) -> None:
    found = records(rolled["parallel"])
    assert [record.executed for record in found] == [True, True, False, False]
    shown = worker[0].tokenizer.decode(rolled["parallel"]["ids"])
    assert shown.count("Not run: at most 2 calls are run in one turn.") == 2


def test_an_answer_that_only_a_tool_gave_earns_nothing(rolled: dict[str, dict[str, Any]]) -> None:
    assert rolled["leak"]["acc"] == 0.0
    assert rolled["calculator"]["acc"] == 1.0


@pytest.mark.parametrize(
    ("kind", "error_kind"), [("broken", "parse"), ("bad_json_10k", "parse"), ("unknown", "unknown_tool")]
)
def test_a_wrong_call_is_told_and_the_model_goes_on(
    kind: str, error_kind: str, rolled: dict[str, dict[str, Any]]
) -> None:
    assert [record.error_kind for record in records(rolled[kind])] == [error_kind]
    assert rolled[kind][RECORD]["stop_reason"] == StopReason.ANSWERED
    assert rolled[kind]["acc"] == 1.0


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("never_stops", StopReason.MAX_TURNS),
        ("endless_json", StopReason.CONTEXT_FULL),
        ("overflow", StopReason.CONTEXT_FULL),
        ("unreleasable", StopReason.ANSWERED),
        ("engine_down", StopReason.INFRA),
    ],
)
def test_why_a_trajectory_ended(kind: str, reason: StopReason, rolled: dict[str, dict[str, Any]]) -> None:
    assert rolled[kind][RECORD]["stop_reason"] == reason


@pytest.mark.parametrize("kind", sorted(set(SCRIPTS) - INFRA))
async def test_the_score_is_outcome_and_weighted_tool_rewards(kind: str, rolled: dict[str, dict[str, Any]]) -> None:
    row = rolled[kind]
    trajectory = Trajectory(
        trajectory_id="t",
        sample=Sample(sample_id="s", data_source="openai/gsm8k", messages=[{"role": "user"}], ground_truth="7"),
        messages=[{"role": "user"}, {"role": "assistant", "content": row[RECORD]["answer_text"]}],
        prompt_ids=[],
        stop_reason=StopReason.ANSWERED,
        records=records(row),
        tool_rewards=row[RECORD]["tool_rewards"],
    )
    expected = await score_trajectory(trajectory, RewardWeights(tool=0.1))
    assert expected is not None
    assert row["score"] == expected.total
    assert row["total"] == pytest.approx(expected.total, abs=1e-6)  # 32 bits in the batch


async def test_a_row_too_long_for_the_prompt_is_refused(worker: tuple[Any, ScriptedClient]) -> None:
    question = {"role": "user", "content": "x " * PROMPT_LENGTH + "KIND=plain"}
    rows = batch(["plain"], "rollbox_agent", raw_prompt=[[question]])
    with pytest.raises(ConfigError, match=rf"data.max_prompt_length is {PROMPT_LENGTH}; raise it or"):
        await worker[0].generate_sequences(rows)


async def test_tools_of_a_row(worker: tuple[Any, ScriptedClient]) -> None:
    rows = batch(
        ["state", "calculator"],
        "rollbox_agent",
        extra_info=[{"index": 0}, {"index": 1, "tool_selection": ["count"]}],
        tools_kwargs=[{"count": {"create_kwargs": {"start": 5}}, "calculator": None}, {}],
    )
    output = await worker[0].generate_sequences(rows)
    first, second = output.non_tensor_batch[RECORD]
    assert first["tool_rewards"] == {"count": 7.0}
    assert second["calls"][0]["error_kind"] == "unknown_tool"


def test_rows_are_read_or_refused_by_name() -> None:
    message = {"role": "user", "content": "q", "tool_calls": None}
    sample = sample_of({"raw_prompt": [message], "reward_model": {"ground_truth": ["a"]}, "index": np.int64(3)})
    assert (sample.sample_id, sample.ground_truth) == ("3", '["a"]')
    assert sample.messages == [{"role": "user", "content": "q"}]
    with pytest.raises(ConfigError, match="messages"):
        sample_of({"raw_prompt": []})
    with pytest.raises(ConfigError, match="takes text and images"):
        sample_of({"raw_prompt": [{"role": "user", "content": [{"type": "video"}]}]})
    with pytest.raises(ConfigError, match="no tool 'nope' is loaded; there are: count"):
        selected_tools({"extra_info": {"tool_selection": ["nope"]}}, ("count",))


async def test_our_loop_loads_functions_that_verls_loader_does_not(random_model_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "functions.yaml"
    entry = {"class_name": f"{double.__module__}.double", "config": {"type": "function"}}
    file.write_text(yaml.safe_dump({"tools": [entry]}))
    config = compose_config(
        random_model_dir,
        file,
        "actor_rollout_ref.rollout.multi_turn.tool_config_path=null",
        f"+rollbox.tools_config_file={file}",
        "reward.reward_manager.name=rollbox",
    )
    worker, _ = make_worker(config, {"double": [call("double", number=4), "#### 7<|im_end|>"]})
    output = await worker.generate_sequences(batch(["double"], "rollbox_agent"))
    [record] = output.non_tensor_batch[RECORD]
    assert [(each["tool"], each["executed"], each["error_kind"]) for each in record["calls"]] == [
        ("double", True, None)
    ]
    assert "<tool_response>\n8\n" in worker.tokenizer.decode(output.batch["responses"][0])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+rollbox.max_turn=3", "rollbox: max_turn: Extra inputs"),
        ("+rollbox.max_turns=0", r"rollbox: max_turns: .*greater than or equal to 1"),
        ("actor_rollout_ref.rollout.multi_turn.format=nope", r"no tool-call format 'nope'"),
    ],
)
async def test_a_wrong_setting_is_named(override: str, message: str, random_model_dir: Path, tools_file: Path) -> None:
    worker, _ = make_worker(compose_config(random_model_dir, tools_file, override), SCRIPTS)
    with pytest.raises(Exception, match=message):
        await worker.generate_sequences(batch(["plain"], "rollbox_agent"))


async def test_in_v1_tool_rewards_lie_on_the_tokens_that_earned_them(
    random_model_dir: Path, tools_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What verl's V1 worker puts into the batch: `as_dict` of the output, after the score came back."""
    config = compose_config(
        random_model_dir, tools_file, "reward.reward_manager.name=rollbox", "+rollbox.rewards.tool=0.1"
    )
    worker, _ = make_worker(config, SCRIPTS)
    outputs: dict[str, Any] = {}

    async def keep(output: Any, validate: bool, **row: Any) -> None:
        await worker._compute_score([output], kwargs=row)
        outputs[row["raw_prompt"][0]["content"].split("KIND=")[1]] = output

    monkeypatch.setattr(worker, "_agent_loop_postprocess", keep)
    monkeypatch.setattr(worker, "_postprocess", lambda outputs, **_: None)
    await worker.generate_sequences(batch(["state", "calculator", "engine_lost"], "rollbox_agent"))

    output = outputs["state"]
    fields = output.as_dict()
    ends = [
        i for i, (a, b) in enumerate(zip(output.response_mask, [*output.response_mask[1:], 0], strict=True)) if a > b
    ]
    rewards = fields["rm_scores"]
    assert len(ends) == 3
    assert rewards.nonzero().flatten().tolist() == ends
    # Each call gave 0.5; the trajectory's reward of the tool is 2; the answer 2 is wrong but well marked.
    assert rewards[ends].tolist() == pytest.approx([0.05, 0.05, 0.1 + 0.2])
    assert output.reward_score == pytest.approx(0.1)
    assert "token_rewards" not in fields
    assert outputs["calculator"].as_dict()["rm_scores"].sum() == pytest.approx(1.1)
    assert not outputs["engine_lost"].as_dict()["rm_scores"].any()
