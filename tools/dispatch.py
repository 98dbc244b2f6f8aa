"""Run the calls of one trajectory: find the tool, check the arguments, keep the deadline, write the CallRecord.

A tool that raises, hangs or returns nonsense costs its own call and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from ..schemas.call_record import CallRecord
from ..schemas.errors import ErrorKind, InfraError, OverloadedError, ToolError
from ..schemas.redacted import redacted
from ..schemas.tool import ToolCall, ToolResponse
from . import pacing
from .arguments import ArgumentsValidator
from .base import BaseTool, CallContext, ToolReturn
from .images import ImageLimits, read_images, with_notes
from .returned import checked, finite, plain_text, read_metrics
from .slots import Slots
from .truncate import Encoder, Keep, truncate, truncate_tokens

logger = logging.getLogger(__name__)

UNAVAILABLE = "The tool {name!r} is unavailable at the moment."
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """Attributes:
    call_timeout_s: seconds that one call may take, waiting for a slot included.
    max_output_chars: characters of a tool's text that the model sees; `keep` says which end survives.
    max_output_tokens: the same in tokens, applied after it; None: characters only.
    release_timeout_s: seconds that releasing one tool instance may take.
    max_concurrency: calls of all tools that may run at a time; more wait. None: no limit.
    images: what is too much of them; the model is told of each that is left out.
    """

    call_timeout_s: float = 60.0
    max_output_chars: int = 8000
    max_output_tokens: int | None = None
    keep: Keep = "both"
    release_timeout_s: float = 10.0
    max_concurrency: int | None = None
    images: ImageLimits = field(default_factory=ImageLimits)


@dataclass(slots=True)
class Answer:
    """A call's response and its record. Images of the response are RGB images of Pillow."""

    response: ToolResponse
    record: CallRecord


class ToolBox:
    """The tools of one job, with what its trajectories share: compiled argument checks, and slots.

    Args:
        tools: name -> tool.
        encode: text -> token ids; needed for `max_output_tokens`.

    Raises:
        ConfigError: a tool's schema is no JSON schema.
        ValueError: `max_output_tokens` without `encode`.
    """

    def __init__(
        self, tools: Mapping[str, BaseTool], limits: DispatchLimits | None = None, encode: Encoder | None = None
    ) -> None:
        self.tools = tools
        self.limits = limits or DispatchLimits()
        self.validators = {name: ArgumentsValidator(tool.tool_schema) for name, tool in tools.items()}
        self.slots = Slots(self.limits.max_concurrency) if self.limits.max_concurrency is not None else None
        self.encode = encode
        if self.limits.max_output_tokens is not None and encode is None:
            raise ValueError("max_output_tokens needs the tokenizer's encode")

    def trajectory(self, trajectory_id: str, tools_kwargs: Mapping[str, Any] | None = None) -> TrajectoryTools:
        """The tools for one trajectory.

        Args:
            tools_kwargs: name -> `{"create_kwargs": {...}}`, from the data set.
        """
        return TrajectoryTools(self, trajectory_id, tools_kwargs or {})


@dataclass(slots=True)
class TrajectoryTools:
    """The tool instances of one trajectory. Use as `async with`: leaving releases every instance."""

    box: ToolBox
    trajectory_id: str
    tools_kwargs: Mapping[str, Any] = field(default_factory=dict)
    _instances: dict[str, asyncio.Task[str]] = field(default_factory=dict, init=False)
    _stateless: dict[str, str] = field(default_factory=dict, init=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._instances:
            # Shielded: a cancelled trajectory still gives back its sessions and slots.
            await asyncio.shield(asyncio.gather(*(self._release(name) for name in list(self._instances))))
        self._stateless.clear()

    async def call(self, call: ToolCall, turn: int, index: int) -> Answer:
        """Run one call. Never raises for what a tool or model did wrong; cancellation passes through."""
        await pacing.turn()
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
        except (Exception, SystemExit) as error:  # a tool's own bug: the trajectory goes on and is masked
            logger.warning("tool %r raised", call.name, exc_info=True)
            message = redacted(f"{type(error).__name__}: {error}")
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
        for name in [*self._instances, *self._stateless]:
            try:
                async with asyncio.timeout(self.box.limits.call_timeout_s):
                    value = await self.box.tools[name].calc_reward(await self._instance(name))
            except Exception as error:
                raise InfraError(f"calc_reward of tool {name!r} failed: {type(error).__name__}: {error}") from error
            rewards[name] = finite(value, f"calc_reward of tool {name!r}")
        return rewards

    async def _execute(self, call: ToolCall, record: CallRecord) -> ToolResponse:
        tool = self.box.tools.get(call.name)
        if tool is None:
            raise ToolError(self._unknown(call.name), ErrorKind.UNKNOWN_TOOL)
        arguments, record.coerced = self.box.validators[call.name].check(call.arguments)
        record.arguments = arguments
        deadline = time.monotonic() + self.box.limits.call_timeout_s
        context = CallContext(self.trajectory_id, record.turn, deadline, self._create_kwargs(call.name))
        # The tool's own slots first: calls that wait for a busy tool must not hold what others could use.
        waiting_s = time.monotonic()
        async with contextlib.AsyncExitStack() as held:
            for slots in (tool.slots, self.box.slots):
                if slots is not None:
                    await self._take(slots, held, deadline)
            if tool.slots is not None or self.box.slots is not None:
                record.queue_ms = (time.monotonic() - waiting_s) * 1e3
            returned = await self._bounded(tool, arguments, context, record)
        response, record.tool_reward, metrics = checked(call.name, returned)
        read_metrics(record, metrics)
        return await self._with_images(response, record) if response.image or response.video else response

    async def _with_images(self, response: ToolResponse, record: CallRecord) -> ToolResponse:
        """The response with images that can be shown, and a note of each that cannot."""
        images, problems = await asyncio.to_thread(read_images, response.image or [], self.box.limits.images)
        problems += [ToolError("it is a video, which no model here is shown")] * len(response.video or [])
        if problems and record.error_kind is None:
            record.error_kind, record.error = problems[0].kind, f"an image was left out: {problems[0]}"
        record.images, record.images_left_out = len(images), record.images_left_out + len(problems)
        return ToolResponse(text=with_notes(response.text or "", problems), image=images or None)

    async def _take(self, slots: Slots, held: contextlib.AsyncExitStack, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await held.enter_async_context(slots)
        except TimeoutError:
            raise OverloadedError(
                f"no free slot of {slots.count} within {self.box.limits.call_timeout_s:g} s"
            ) from None

    async def _bounded(
        self, tool: BaseTool, arguments: dict[str, Any], context: CallContext, record: CallRecord
    ) -> ToolReturn:
        """Run the call in a task of its own: one that ignores its cancellation is left behind, not waited for."""
        task = asyncio.create_task(self._run(tool, arguments, context, record))
        try:
            done, _ = await asyncio.wait({task}, timeout=context.remaining_s())
            if not done:
                task.cancel()
                done, _ = await asyncio.wait({task}, timeout=_GRACE_S)
                if not done:
                    logger.warning("tool %r does not end when it is cancelled", tool.name)
                    task.add_done_callback(_forget)
                elif not task.cancelled() and task.exception() is None:
                    return task.result()  # it answered at the last moment
                raise InfraError(f"no answer within {self.box.limits.call_timeout_s:g} s")
        except asyncio.CancelledError:
            await _cancelled(task)
            raise
        if task.cancelled():
            raise InfraError(f"tool {tool.name!r} cancelled its own call")
        return task.result()

    async def _run(
        self, tool: BaseTool, arguments: dict[str, Any], context: CallContext, record: CallRecord
    ) -> ToolReturn:
        instance_id = await self._instance(tool.name)
        record.executed = True
        try:
            return await tool.execute(instance_id, arguments, context=context)
        except SystemExit as error:  # in a task it would end the whole event loop
            raise InfraError(f"tool {tool.name!r} raised SystemExit: {error}") from error

    async def _instance(self, name: str) -> str:
        if _keeps_nothing(self.box.tools[name]):
            return self._stateless.setdefault(name, f"{self.trajectory_id}/{name}")
        # One task per tool: parallel first calls share one `create`, and one cancelled call does not end it.
        task = self._instances.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._instances[name] = asyncio.create_task(self._create(name))
        return task.result() if task.done() else await asyncio.shield(task)

    async def _create(self, name: str) -> str:
        create_kwargs = dict(self._create_kwargs(name))
        instance_id, _ = await self.box.tools[name].create(uuid4().hex, create_kwargs=create_kwargs)
        return instance_id

    def _create_kwargs(self, name: str) -> Mapping[str, Any]:
        kwargs: Mapping[str, Any] = self.tools_kwargs.get(name) or {}
        return kwargs.get("create_kwargs") or {}

    async def _release(self, name: str) -> None:
        task = self._instances.pop(name)
        try:
            async with asyncio.timeout(self.box.limits.release_timeout_s):
                await self.box.tools[name].release(await task)
        except Exception:  # nothing that a release does may cost a finished trajectory
            logger.warning("releasing tool %r failed", name, exc_info=True)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.box.tools, n=1, cutoff=0.5)
        advice = f" Did you mean {near[0]!r}?" if near else ""
        return f"There is no tool {name!r}.{advice} Available tools: {', '.join(self.box.tools) or 'none'}."

    def _failed(self, record: CallRecord, kind: ErrorKind, error: str, shown: str | None = None) -> ToolResponse:
        record.error_kind, record.error = kind, error
        return ToolResponse(text=shown or error)

    def _shown(self, response: ToolResponse, record: CallRecord) -> ToolResponse:
        limits = self.box.limits
        text = plain_text(response.text or "")
        shown = truncate(text, limits.max_output_chars, limits.keep)
        if limits.max_output_tokens is not None and self.box.encode is not None:
            shown = truncate_tokens(shown, limits.max_output_tokens, self.box.encode, limits.keep)
            record.shown_tokens = len(self.box.encode(shown))
        record.output_chars, record.shown_chars = len(text), len(shown)
        record.truncated = record.truncated or shown != text
        return response if shown == (response.text or "") else response.model_copy(update={"text": shown})


def _keeps_nothing(tool: BaseTool) -> bool:
    """Whether the tool has nothing to begin and to end for a trajectory, which spares a task for each."""
    kind = type(tool)
    return kind.create is BaseTool.create and kind.release is BaseTool.release


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task whose caller is being cancelled, and let it clean up, but not for ever."""
    task.cancel()
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=_GRACE_S)


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
