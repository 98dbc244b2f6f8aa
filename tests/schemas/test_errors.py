"""The error tree crosses process borders whole."""

from __future__ import annotations

import pickle

import pytest

from rollbox.schemas.errors import (
    INFRA_KINDS,
    ConfigError,
    EngineError,
    ErrorKind,
    InfraError,
    OverloadedError,
    RollboxError,
    SandboxError,
    ToolError,
)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("key: wrong"),
        ToolError("bad arguments", ErrorKind.ARGUMENTS),
        InfraError("down", retries=2),
        SandboxError("down", retries=3),
        OverloadedError("full", retry_after_s=2.5, retries=1),
        EngineError("gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: RollboxError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("kind", sorted(INFRA_KINDS))
def test_a_tool_error_cannot_blame_the_model_for_our_faults(kind: ErrorKind) -> None:
    with pytest.raises(ValueError, match="that is an InfraError"):
        ToolError("no", kind)


def test_kinds_of_infra_errors() -> None:
    assert SandboxError("x").kind is ErrorKind.INFRA
    assert OverloadedError("x").kind is ErrorKind.OVERLOADED
