"""Metrics of a batch, from records alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollbox.schemas.call_record import CallRecord
from rollbox.schemas.errors import ConfigError
from rollbox.training.batch_rows import BatchRow, write_records
from rollbox.training.metrics import batch_metrics, percentile
from rollbox.training.settings import settings_of


def call(tool: str = "python", **fields: Any) -> dict[str, Any]:
    given = {"executed": True, **fields}
    return CallRecord(trajectory_id="t", turn=0, index=0, tool=tool, **given).model_dump(mode="json")


def row(
    calls: list[dict[str, Any]], infra_failed: bool = False, acc: float | None = 1.0, score: float = 1.0
) -> BatchRow:
    record = {
        "infra_failed": infra_failed,
        "stop_reason": "infra" if infra_failed else "answered",
        "assistant_texts": ["a", "b"],
        "calls": calls,
        "tool_tokens": 10,
        "draft_calls": 0,
        "token_rewards": [[3, 0.25]],
    }
    return BatchRow("u_0_0", record, {"acc": acc, "text": "x"}, [0.0, score], [1, 1])


def test_calls_are_counted_by_tool_and_by_what_went_wrong() -> None:
    calls = [
        call(run_ms=30.0, queue_ms=10.0, tool_reward=0.5, retries=2),
        call(run_ms=10.0, queue_ms=0.0, error_kind="user_code"),
        call("calculator", run_ms=1.0, repaired=True),
        call("", executed=False, error_kind="parse"),
        call("nope", executed=False, error_kind="unknown_tool"),
    ]
    found = batch_metrics([row(calls), row([])])
    assert found["rollbox/tool/python/calls_total"] == 2
    assert found["rollbox/tool/python/errors_total"] == 1
    assert found["rollbox/tool/python/latency_ms/p50"] == 10
    assert found["rollbox/tool/python/latency_ms/p99"] == 40
    assert found["rollbox/tool/python/queue_share"] == pytest.approx(10 / 50)
    assert found["rollbox/tool/python/reward/mean"] == 0.25
    assert found["rollbox/tool/python/retries_total"] == 2
    assert found["rollbox/tool/calculator/calls_total"] == 1
    assert found["rollbox/parse_repairs_total"] == 1
    kinds = {name: value for name, value in found.items() if name.startswith("rollbox/errors/")}
    assert set(kinds) == {f"rollbox/errors/{kind}_total" for kind in ("user_code", "parse", "unknown_tool")}
    assert set(kinds.values()) == {1}
    assert not any("nope" in name for name in found)
    assert found["rollbox/calls/mean"] == 2.5


def test_what_failed_through_our_fault_is_counted_and_not_averaged() -> None:
    found = batch_metrics([row([], score=0.5), row([], infra_failed=True, acc=None, score=0.0)], lost=3)
    assert found["rollbox/infra_failed_total"] == 1
    assert found["rollbox/lost_total"] == 3
    assert found["rollbox/reward/acc/mean"] == 1
    assert found["rollbox/reward/all/mean"] == 0.5
    assert found["rollbox/reward/at_tokens/mean"] == 0.25
    assert found["rollbox/stop/infra"] == found["rollbox/stop/answered"] == 0.5
    assert "rollbox/reward/text/mean" not in found


def test_trajectories_of_another_loop_have_rewards_only() -> None:
    found = batch_metrics([BatchRow("u_0_0", None, {"acc": 0.5}, None, [1])])
    assert found == {"rollbox/infra_failed_total": 0, "rollbox/lost_total": 0, "rollbox/reward/acc/mean": 0.5}


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_percentiles_are_values_that_were_seen(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == value


def test_records_are_written_line_by_line(tmp_path: Path) -> None:
    file = write_records([row([call()]), row([])], tmp_path / "new", step=7)
    assert file.name == "step_000007.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["step"] for line in lines] == [7, 7]
    assert lines[0]["record"]["calls"][0]["tool"] == "python"
    assert lines[0]["scores"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"max_turn": 1}, "rollbox: max_turn: Extra inputs"),
        ({"rewards": {"tool": float("nan")}}, "rollbox: rewards.tool: .*finite"),
        ({"keep": "middle"}, "rollbox: keep"),
        ({"max_infra_failed_share": 2}, "rollbox: max_infra_failed_share"),
    ],
)
def test_a_wrong_setting_is_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(section)
