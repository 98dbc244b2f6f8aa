"""Bad input names field and value; trajectories that do not add up cannot be built."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rollbox.schemas.errors import ConfigError
from rollbox.schemas.generation import SamplingParams, TokenOutput
from rollbox.schemas.run import RunLimits, RunRequest
from rollbox.schemas.tool import ToolSchema
from rollbox.schemas.trajectory import Trajectory
from rollbox.schemas.validation import validated


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "code: Field required"),
        ({"code": 5}, "code: Input should be a valid string (got 5)"),
        (
            {"code": "", "langage": "python"},
            "langage: Extra inputs are not permitted (got 'python'); did you mean 'language",
        ),
        (
            {"code": "", "limits": {"wal_s": 1}},
            "limits.wal_s: Extra inputs are not permitted (got 1); did you mean 'wall",
        ),
        ({"code": "", "limits": {"wall_s": -1}}, "limits.wall_s: Input should be greater than 0 (got -1)"),
        ({"code": "", "limits": {"wall_s": float("nan")}}, "limits.wall_s:"),
        ({"code": "", "limits": {"memory_mb": True}}, "limits.memory_mb: must be a number, not a boolean (got True)"),
        ({"code": "", "limits": {"memory_mb": 10**9}}, "limits.memory_mb: Input should be less than or equal"),
        ({"code": "", "files": {"/etc/passwd": ""}}, "must stay inside the work dir"),
        ({"code": "", "files": {"a/../../b": ""}}, "must stay inside the work dir"),
        ({"code": "", "files": {".": ""}}, "must stay inside the work dir"),
        ({"code": "", "files": {"": ""}}, "must have 1 to 512 characters"),
        ({"code": "", "files": {"a\0b": ""}}, "no NUL"),
        ({"code": "", "files": {"a": "not base64!"}}, "files.a: not base64"),
        ({"code": "", "fetch_files": ["../x"]}, "fetch_files.0: a file name must stay inside the work dir"),
        ({"code": "", "env": {"A B": "1"}}, "env.A B"),
        ({"code": "", "env": {"A": "1\0"}}, "env.A: must not contain NUL"),
        ({"code": "", "args": ["a\0"]}, "args.0: must not contain NUL"),
    ],
)
def test_run_requests(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        validated(RunRequest, fields, "request")
    assert said in str(error.value)
    assert str(error.value).startswith("request: ")


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ConfigError) as error:
        validated(RunLimits, {"wall_s": "x" * 5000}, "limits")
    assert len(str(error.value)) < 300


def test_limits_have_defaults_that_fit() -> None:
    assert RunRequest(code="print(1)").limits == RunLimits()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "function", "function": {"name": ""}}, "function.name"),
        ({"type": "function", "function": {"name": "a b"}}, "function.name"),
        ({"type": "tool", "function": {"name": "a"}}, "type: Input should be 'function'"),
        ({"type": "function", "function": {"name": "a", "paramters": {}}}, "function.paramters: Extra inputs"),
    ],
)
def test_tool_schemas(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        validated(ToolSchema, schema, "tool")
    assert said in str(error.value)


def test_json_schema_keywords_survive_to_the_template() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "minItems": 1}}}
    schema = ToolSchema.model_validate({"type": "function", "function": {"name": "f", "parameters": parameters}})
    assert schema.as_template_dict()["function"]["parameters"]["properties"] == parameters["properties"]


def test_a_generation_keeps_ids_and_logprobs_together() -> None:
    with pytest.raises(ValidationError, match="2 token ids but 1 logprobs"):
        TokenOutput(token_ids=[1, 2], logprobs=[0.0], finish_reason="stop")


@pytest.mark.parametrize("field", ["temperature", "top_p", "max_tokens"])
def test_sampling_refuses_nonsense(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        validated(SamplingParams, {field: -1}, "sampling")


def trajectory(**changes: Any) -> Trajectory:
    fields: dict[str, Any] = {
        "trajectory_id": "t",
        "sample": {"sample_id": "s", "data_source": "d", "messages": [{"role": "user", "content": "q"}]},
        "messages": [{"role": "user", "content": "q"}],
        "prompt_ids": [1, 2],
        "response_ids": [5, 6, 7, 8],
        "response_mask": [1, 1, 0, 0],
        "response_logprobs": [-0.5, -0.5, 0.0, 0.0],
        "spans": [
            {"kind": "assistant", "turn": 0, "start": 0, "end": 2},
            {"kind": "context", "turn": 0, "start": 2, "end": 4},
        ],
        "stop_reason": "answered",
    }
    return Trajectory.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"response_logprobs": [0.0]}, "response_logprobs has 1 entries for 4 response_ids"),
        ({"response_mask": [1, 1, 1, 0]}, r"mask inside context span \[2, 4\) is not all 0"),
        ({"response_mask": [1, 0, 0, 0]}, r"mask inside assistant span \[0, 2\) is not all 1"),
        ({"spans": [{"kind": "assistant", "turn": 0, "start": 0, "end": 2}]}, "spans cover 2 of 4"),
        (
            {"spans": [{"kind": "assistant", "turn": 0, "start": 1, "end": 2}]},
            r"span assistant \[1, 2\) does not follow position 0",
        ),
    ],
)
def test_trajectories_add_up(changes: dict[str, Any], said: str) -> None:
    assert trajectory().num_turns == 0
    with pytest.raises(ValidationError, match=said):
        trajectory(**changes)


def test_x04_a_mask_of_another_length_is_refused(cases: dict[str, Any]) -> None:
    case = cases["X04"]["input"]
    ids, mask = case["completion_ids"], case["tool_mask"]
    with pytest.raises(ValidationError, match="response_mask has 5 entries for 4 response_ids"):
        trajectory(response_ids=ids, response_mask=mask)
