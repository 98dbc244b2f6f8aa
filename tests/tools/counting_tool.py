"""A tool whose behaviour each test chooses, and which writes down its lifecycle."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

from rollbox.schemas.errors import ErrorKind, SandboxError, ToolError
from rollbox.schemas.tool import ToolResponse
from rollbox.tools.base import BaseTool, ToolConfig, ToolReturn, create_kwargs_of


class CountingConfig(ToolConfig):
    start: int = 0


class CountingTool(BaseTool):
    """`mode` in the arguments says what happens; the default counts up within the trajectory."""

    config_model = CountingConfig
    config: CountingConfig
    default_schema: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "count",
            "description": "Count up.",
            "parameters": {
                "type": "object",
                "properties": {"mode": {"type": "string"}, "step": {"type": "integer"}},
                "required": [],
            },
        },
    }

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self.log: list[tuple[str, Any]] = []
        self.counts: dict[str, int] = {}
        self.hanging = asyncio.Event()
        self.may_end = asyncio.Event()
        self.running = self.most = self.cancelled = 0

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        instance_id, response = await super().create(instance_id, **kwargs)
        self.counts[instance_id] = create_kwargs_of(kwargs).get("start", self.config.start)
        self.log.append(("create", create_kwargs_of(kwargs)))
        return instance_id, response

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        self.log.append(("execute", parameters))
        match parameters.get("mode", "count"):
            case "raise":
                raise RuntimeError("a bug in the tool")
            case "refuse":
                raise ToolError("cannot count that", ErrorKind.USER_CODE)
            case "infra":
                raise SandboxError("the sandbox is down", retries=3)
            case "hang":
                self.hanging.set()
                await asyncio.Event().wait()
            case "stubborn":
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        self.cancelled += 1
            case "cancel_itself":
                raise asyncio.CancelledError
            case "exit":
                raise SystemExit(4)
            case "surrogate":
                return ToolResponse(text="half \ud83d"), 0.0, {}
            case "bare_text":
                return ToolResponse.model_construct(text=b"bytes"), 0.0, {}  # type: ignore[arg-type]
            case "odd_metrics":
                return (
                    ToolResponse(text="x"),
                    0.0,
                    {"loss": {1: object()}, 5: float("nan"), "bytes": b"\xff", "half": "\ud83d"},
                )
            case "bad_metric":
                return ToolResponse(text="x"), 0.0, {"queue_ms": "soon"}
            case "bad_kind":
                return ToolResponse(text="x"), 0.0, {"error_kind": "sad"}
            case "another_response":
                return SimpleNamespace(text="theirs", image=None, video=None), None, None  # type: ignore[return-value]
            case "wait":
                self.running += 1
                self.most = max(self.most, self.running)
                await self.may_end.wait()
                self.running -= 1
            case "garbage":
                return "text"  # type: ignore[return-value]
            case "pair":
                return ToolResponse(text="x"), 0.0  # type: ignore[return-value]
            case "nan":
                return ToolResponse(text="x"), float("nan"), {}
            case "long":
                return ToolResponse(text="A" * 500 + "B" * 500), 0.0, {}
            case "metrics":
                return ToolResponse(text="x"), 0.25, {"queue_ms": 3.0, "run_ms": 4.0, "retries": 2, "depth": 7}
            case "program_error":
                return ToolResponse(text="NameError"), -0.1, {"error_kind": "user_code", "error": "NameError: x"}
        self.counts[instance_id] += parameters.get("step", 1)
        return ToolResponse(text=str(self.counts[instance_id])), 0.5, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return float(self.counts[instance_id])

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self.log.append(("release", self.counts.pop(instance_id)))
