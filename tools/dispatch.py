"""Run the calls of one trajectory: find the tool, check the arguments, keep the deadline, write the CallRecord.

A tool that raises, hangs or returns nonsense costs its own call and nothing else.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from ..schemas.call_record import CallRecord
from ..schemas.errors import ErrorKind, InfraError, ToolError
from ..schemas.tool import ToolCall, ToolResponse
from .arguments import ArgumentsValidator
from .base import BaseTool, CallContext
from .truncate import Keep, truncate

logger = logging.getLogger(__name__)

UNAVAILABLE = "The tool {name!r} is unavailable at the moment."


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """Attributes:
    call_timeout_s: seconds that one call may take, waiting for a slot included.
    max_output_chars: characters of a tool's text that the model sees; `keep` says which end survives.
    release_timeout_s: seconds that releasing one tool instance may take.
    """

    call_timeout_s: float = 60.0
    max_output_chars: int = 8000
    keep: Keep = "both"
    release_timeout_s: float = 10.0


@dataclass(slots=True)
class Answer:
    """A call's response and its record."""

    response: ToolResponse
    record: CallRecord


@dataclass(slots=True)
class TrajectoryTools:
    """The tool instances of one trajectory. Use as `async with`: leaving releases every instance.

    Attributes:
        tools: name -> tool, shared between trajectories.
        tools_kwargs: name -> `{"create_kwargs": {...}}`, from the data set.
    """

    tools: Mapping[str, BaseTool]
    validators: Mapping[str, ArgumentsValidator]
    trajectory_id: str
    tools_kwargs: Mapping[str, Any] = field(default_factory=dict)
    limits: DispatchLimits = field(default_factory=DispatchLimits)
    _instances: dict[str, asyncio.Task[str]] = field(default_factory=dict, init=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # Shielded: a cancelled trajectory still gives back its sessions and slots.
        await asyncio.shield(asyncio.gather(*(self._release(name) for name in list(self._instances))))

    async def call(self, call: ToolCall, turn: int, index: int) -> Answer:
        """Run one call. Never raises for what a tool or model did wrong; cancellation passes through."""
        record = CallRecord(
            trajectory_id=self.trajectory_id,
            turn=turn,
            index=index,
            tool=call.name,
            arguments=call.arguments,
            repaired=call.repaired,
        )
        started = time.perf_counter()
        try:
            response = await self._execute(call, record)
        except ToolError as error:
            response = self._failed(record, error.kind, str(error))
        except InfraError as error:
            record.retries = error.retries
            response = self._failed(record, error.kind, str(error), UNAVAILABLE.format(name=call.name))
        except TimeoutError:
            message = f"no answer within {self.limits.call_timeout_s:g} s"
            response = self._failed(record, ErrorKind.INFRA, message, UNAVAILABLE.format(name=call.name))
        except Exception as error:  # a tool's own bug: the trajectory goes on and is masked
            logger.warning("tool %r raised", call.name, exc_info=True)
            message = f"{type(error).__name__}: {error}"
            response = self._failed(record, ErrorKind.INFRA, message, UNAVAILABLE.format(name=call.name))
        if record.executed and not record.run_ms:
            record.run_ms = (time.perf_counter() - started) * 1e3 - record.queue_ms
        return Answer(self._shown(response, record), record)

    async def calc_rewards(self) -> dict[str, float]:
        """Ask each tool that was used for its reward of the whole trajectory. tool name -> reward.

        Raises:
            InfraError: a tool raised, hung, or answered with something that is not a finite number.
        """
        rewards: dict[str, float] = {}
        for name in list(self._instances):
            try:
                async with asyncio.timeout(self.limits.call_timeout_s):
                    value = await self.tools[name].calc_reward(await self._instance(name))
            except Exception as error:
                raise InfraError(f"calc_reward of tool {name!r} failed: {type(error).__name__}: {error}") from error
            rewards[name] = _finite(value, f"calc_reward of tool {name!r}")
        return rewards

    async def _execute(self, call: ToolCall, record: CallRecord) -> ToolResponse:
        tool = self.tools.get(call.name)
        if tool is None:
            raise ToolError(self._unknown(call.name), ErrorKind.UNKNOWN_TOOL)
        arguments, record.coerced = self.validators[call.name].check(call.arguments)
        record.arguments = arguments
        deadline = time.monotonic() + self.limits.call_timeout_s
        context = CallContext(trajectory_id=self.trajectory_id, turn=record.turn, deadline=deadline)
        async with asyncio.timeout(self.limits.call_timeout_s):
            instance_id = await self._instance(call.name)
            record.executed = True
            returned = await tool.execute(instance_id, arguments, context=context)
        response, reward, metrics = _checked(call.name, returned)
        record.tool_reward = reward
        _read_metrics(record, metrics)
        return response

    async def _instance(self, name: str) -> str:
        # One task per tool: parallel first calls share one `create`, and one cancelled call does not end it.
        task = self._instances.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._instances[name] = asyncio.create_task(self._create(name))
        return await asyncio.shield(task)

    async def _create(self, name: str) -> str:
        create_kwargs = dict(self.tools_kwargs.get(name, {}).get("create_kwargs", {}))
        instance_id, _ = await self.tools[name].create(uuid4().hex, create_kwargs=create_kwargs)
        return instance_id

    async def _release(self, name: str) -> None:
        task = self._instances.pop(name)
        try:
            async with asyncio.timeout(self.limits.release_timeout_s):
                await self.tools[name].release(await task)
        except Exception:  # nothing that a release does may cost a finished trajectory
            logger.warning("releasing tool %r failed", name, exc_info=True)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.tools, n=1, cutoff=0.5)
        advice = f" Did you mean {near[0]!r}?" if near else ""
        return f"There is no tool {name!r}.{advice} Available tools: {', '.join(self.tools) or 'none'}."

    def _failed(self, record: CallRecord, kind: ErrorKind, error: str, shown: str | None = None) -> ToolResponse:
        record.error_kind, record.error = kind, error
        return ToolResponse(text=shown or error)

    def _shown(self, response: ToolResponse, record: CallRecord) -> ToolResponse:
        text = response.text or ""
        shown = truncate(text, self.limits.max_output_chars, self.limits.keep)
        record.output_chars, record.shown_chars = len(text), len(shown)
        record.truncated = record.truncated or shown != text
        return response if shown == text else response.model_copy(update={"text": shown})


def make_validators(tools: Mapping[str, BaseTool]) -> dict[str, ArgumentsValidator]:
    """Compile the argument check of each tool. Raises `ConfigError` for a schema that is none."""
    return {name: ArgumentsValidator(tool.tool_schema) for name, tool in tools.items()}


def _checked(name: str, returned: Any) -> tuple[ToolResponse, float, dict[str, Any]]:
    if not (isinstance(returned, tuple) and len(returned) == 3):
        raise InfraError(f"tool {name!r} returned {type(returned).__name__}, not (ToolResponse, reward, metrics)")
    response, reward, metrics = returned
    if not isinstance(response, ToolResponse):
        raise InfraError(f"tool {name!r} returned {type(response).__name__} as its response, not ToolResponse")
    if metrics is not None and not isinstance(metrics, dict):
        raise InfraError(f"tool {name!r} returned {type(metrics).__name__} as its metrics, not a dict")
    return response, _finite(0.0 if reward is None else reward, f"step reward of tool {name!r}"), metrics or {}


def _finite(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InfraError(f"{what} is not a number: {value!r}") from error
    if not math.isfinite(number):
        raise InfraError(f"{what} is {number}")
    return number


def _read_metrics(record: CallRecord, metrics: dict[str, Any]) -> None:
    """Move the metrics that a CallRecord has fields for; keep the rest."""
    rest = dict(metrics)
    record.queue_ms = float(rest.pop("queue_ms", 0.0))
    record.run_ms = float(rest.pop("run_ms", 0.0))
    record.retries = int(rest.pop("retries", 0))
    record.cached = bool(rest.pop("cached", False))
    record.truncated = bool(rest.pop("truncated", False))
    kind = rest.pop("error_kind", None)
    record.error_kind = ErrorKind(kind) if kind is not None else None
    record.error = rest.pop("error", None)
    record.metrics = rest
