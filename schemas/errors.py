"""The error tree, by who is at fault.

    RollboxError
     ├── ConfigError        the user's configuration; stops at start-up
     ├── ToolError          the model's doing; its text goes back to the model
     └── InfraError         ours; retried within the deadline, then the sample is masked, never scored 0
          ├── SandboxError      a sandbox server cannot be reached, or could not run the code
          │    └── SessionLostError   a session is gone: expired, or lost with its server
          ├── OverloadedError   a full queue; carries when to come back
          └── EngineError       an inference engine failed

A program's own crash or timeout inside the sandbox is a result (`schemas.run.RunResult`), not an exception.
Every error can be pickled, because Ray sends errors between processes. Messages are shown, logged and written into
records, so those of the user's and of our own faults have no passwords in their addresses. What the model reads is
left as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from .redacted import redacted


class ErrorKind(StrEnum):
    """The closed set of ways in which a tool call can go wrong."""

    PARSE = "parse"
    UNKNOWN_TOOL = "unknown_tool"
    ARGUMENTS = "arguments"
    USER_CODE = "user_code"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    OVERLOADED = "overloaded"
    INFRA = "infra"


INFRA_KINDS = frozenset({ErrorKind.OVERLOADED, ErrorKind.INFRA})
"""The kinds that are our fault: a trajectory that ends on one is masked out of the loss."""


class RollboxError(Exception):
    """Base of every error that Rollbox raises on purpose."""


class ConfigError(RollboxError):
    """A wrong setting. The message names the file or key, the value, and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class ToolError(RollboxError):
    """A call that failed through the model's doing. `str(error)` is what the model reads.

    Raises:
        ValueError: `kind` is one of the infrastructure kinds; raise `InfraError` for those.
    """

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.USER_CODE) -> None:
        if kind in INFRA_KINDS:
            raise ValueError(f"ToolError cannot have kind {kind.value!r}: that is an InfraError")
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.kind))


class InfraError(RollboxError):
    """A failure of ours. `retries` counts the attempts after the first that were already made."""

    kind: ErrorKind = ErrorKind.INFRA

    def __init__(self, message: str, retries: int = 0) -> None:
        super().__init__(redacted(message))
        self.retries = retries

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.retries))


class SandboxError(InfraError):
    """The sandbox could not be reached, or failed before or while running the code."""


class SessionLostError(SandboxError):
    """A session is gone, with all its state, through no doing of its cells. The message says why."""


class OverloadedError(InfraError):
    """The queue is full. `retry_after_s` is the server's advice."""

    kind = ErrorKind.OVERLOADED

    def __init__(self, message: str, retry_after_s: float = 1.0, retries: int = 0) -> None:
        super().__init__(message, retries)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.retry_after_s, self.retries))


class EngineError(InfraError):
    """An inference engine failed or answered with something that is not a generation."""
