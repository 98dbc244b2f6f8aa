"""The multi-turn loop: generate, parse, run the calls, append their output, generate again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ..schemas.errors import ConfigError, EngineError, ErrorKind, InfraError, ToolError
from ..schemas.generation import FinishReason, SamplingParams, TokenOutput
from ..schemas.trajectory import Sample, StopReason, Trajectory
from ..tools.base import BaseTool
from ..tools.dispatch import Answer, DispatchLimits, ToolBox, TrajectoryTools
from .chat_template import ChatTemplate, Check
from .engines.base import AnyEngine, ChatEngine, ChatReply, VisionEngine
from .parsers import ParsedTurn, ToolCallParser
from .progress import TrajectoryProgress
from .tool_message import ToolMessage, leave_out_last
from .vision.image_tokens import ImageTokens
from .vision.picture import Picture, pictures_of
from .vision.prompt_images import prompt_pictures
from .vision.text_only import without_images

_SEES_NOTHING = ToolError("this model reads text only")
_NO_ROOM = ToolError("there is no room left for it")


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Attributes:
    max_turns: assistant turns. max_calls_per_turn: calls run of one turn; the rest is answered, not dropped.
    max_response_tokens: generated and context tokens after the prompt.
    max_invalid_turns: turns in a row without one readable call before the trajectory ends.
    trajectory_timeout_s: seconds by the clock for the whole trajectory.

    Raises:
        ConfigError: a limit leaves room for nothing.
    """

    max_turns: int = 8
    max_calls_per_turn: int = 4
    max_response_tokens: int = 2048
    max_invalid_turns: int = 3
    trajectory_timeout_s: float = 600.0
    dispatch: DispatchLimits = field(default_factory=DispatchLimits)

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_calls_per_turn", "max_response_tokens", "max_invalid_turns"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: must be at least 1 (got {getattr(self, name)})")
        if not self.trajectory_timeout_s > 0:  # also where it is not a number
            raise ConfigError(f"trajectory_timeout_s: must be more than 0 (got {self.trajectory_timeout_s})")


class RolloutLoop:
    """Runs trajectories of one model with one set of tools; holds no state of any of them.

    Args:
        engine: with a `ChatEngine` the ids are of a local tokenizer, and trajectories are marked as not token-exact.
        processor_kwargs: with which the engine calls its model's processor for images.

    Attributes:
        sees: images can be shown. Otherwise the model is told of each that is left out.

    Raises:
        ConfigError: the chat template cannot be used token-exactly, or a tool's schema is no JSON schema.
    """

    def __init__(
        self,
        engine: AnyEngine,
        tools: Mapping[str, BaseTool],
        parser: ToolCallParser,
        sampling: SamplingParams | None = None,
        limits: RolloutLimits | None = None,
        *,
        template_check: Check = "strict",
        processor_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = engine
        self.tools = tools
        self.parser = parser
        self.sampling = sampling or SamplingParams()
        self.limits = limits or RolloutLimits()
        schemas = [tool.tool_schema for tool in tools.values()]
        self._token_exact = not isinstance(engine, ChatEngine)
        check = template_check if self._token_exact else "off"
        processor = engine.processor if isinstance(engine, VisionEngine | ChatEngine) else None
        image_tokens = ImageTokens(processor, processor_kwargs) if processor is not None else None
        self.template = ChatTemplate(engine.tokenizer, schemas, check=check, image_tokens=image_tokens)
        self.sees = engine.takes_images if isinstance(engine, ChatEngine) else self.template.image_tokens is not None
        self._tool_dicts = [schema.as_template_dict() for schema in schemas]
        self._box = ToolBox(tools, self.limits.dispatch, self.template.encode)

    async def run(self, sample: Sample, trajectory_id: str | None = None, *, seed: int | None = None) -> Trajectory:
        """Roll out one sample. A fault of ours ends in `infra_failed`, not in an exception.

        Args:
            seed: in place of the sampling's own. Each turn adds its number to it.

        Raises:
            ConfigError: an image of the prompt cannot be read, or the model sees none.
        """
        sample, pictures = await self._prompt_pictures(sample)
        prompt_ids = self._prompt_ids(sample, pictures)
        seed = self.sampling.seed if seed is None else seed
        progress = TrajectoryProgress(trajectory_id or uuid4().hex, sample, prompt_ids, seed, self._token_exact)
        progress.conversation.add_pictures(pictures, self._blocks(prompt_ids, pictures, 0))
        async with self._box.trajectory(progress.trajectory_id, sample.tools_kwargs) as session:
            try:
                async with asyncio.timeout(self.limits.trajectory_timeout_s):
                    stop_reason = await self._turns(progress, session)
                    progress.tool_rewards = await session.calc_rewards()
            except TimeoutError:
                # Turns and tokens have limits of their own, so what ran out of time is the engine or a tool.
                stop_reason = StopReason.DEADLINE
                progress.error = f"not finished within trajectory_timeout_s={self.limits.trajectory_timeout_s:g}"
            except InfraError as error:
                stop_reason = StopReason.INFRA
                progress.error = str(error)
        return progress.finish(stop_reason).decoded_by(self.template.decode)

    def check_sample(self, sample: Sample) -> None:
        """
        Raises:
            ConfigError: it has images, and the model cannot be shown them.
        """
        if sample.images and not self.sees:
            raise ConfigError(
                f"sample {sample.sample_id!r}: it has images, and this model is shown text only: it has no processor "
                "for images, or its engine takes none (see docs/images.md)"
            )

    async def _prompt_pictures(self, sample: Sample) -> tuple[Sample, list[Picture]]:
        if not sample.images:
            return sample, []
        self.check_sample(sample)
        limits = self.limits.dispatch.images
        return await asyncio.to_thread(prompt_pictures, sample, limits, self.template.image_tokens)

    def _prompt_ids(self, sample: Sample, pictures: list[Picture]) -> list[int]:
        try:
            if self.template.image_tokens is None:
                return self.template.prompt_ids(without_images(sample.messages) if pictures else sample.messages)
            return self.template.prompt_ids(sample.messages, [picture.tokens for picture in pictures])
        except ConfigError as error:
            raise ConfigError(f"sample {sample.sample_id!r}: {error}") from error

    def _blocks(self, ids: list[int], pictures: list[Picture], offset: int) -> list[tuple[int, int] | None]:
        """Where in `ids` the pictures are; None where a chat server counts by itself."""
        tokens = self.template.image_tokens
        if tokens is None or not self._token_exact:
            return [None] * len(pictures)
        return [*tokens.blocks(ids, [picture.tokens for picture in pictures], offset)]

    async def _turns(self, progress: TrajectoryProgress, session: TrajectoryTools) -> StopReason:
        invalid_turns = 0
        for turn in range(self.limits.max_turns):
            room = self._room(progress)
            if room <= 0:
                return StopReason.CONTEXT_FULL
            finish_reason, parsed = await self._generate(progress, turn, room)
            if finish_reason == "length":
                # A turn cut by the limit is not a call, even where what was written so far can be read as one.
                progress.end_turn(ParsedTurn(content=progress.texts[-1]))
                full = self._room(progress) <= 0
                return StopReason.CONTEXT_FULL if full else StopReason.TURN_TRUNCATED
            if parsed is None:
                parsed = self.parser.parse(progress.texts[-1], think_open=self.template.opens_thinking)
            progress.end_turn(parsed)
            if not parsed.calls and not parsed.problems:
                return StopReason.ANSWERED
            invalid_turns = 0 if parsed.calls else invalid_turns + 1
            answers = await self._answer(progress, session, parsed, turn)
            if turn + 1 == self.limits.max_turns:
                return StopReason.MAX_TURNS
            if invalid_turns >= self.limits.max_invalid_turns:
                return StopReason.MAX_INVALID_CALLS
            if not self._append(progress, turn, answers):
                return StopReason.CONTEXT_FULL
        return StopReason.MAX_TURNS

    def _room(self, progress: TrajectoryProgress) -> int:
        """Tokens that may still be generated."""
        used = len(progress.conversation.response_ids)
        return min(self.engine.max_context - len(progress.conversation), self.limits.max_response_tokens - used)

    async def _generate(
        self, progress: TrajectoryProgress, turn: int, room: int
    ) -> tuple[FinishReason, ParsedTurn | None]:
        """Add a turn; also returns it taken apart where a chat server has done that."""
        max_tokens = min(self.sampling.max_tokens, room)
        seed = None if progress.seed is None else progress.seed + turn
        sampling = self.sampling.model_copy(update={"max_tokens": max_tokens, "seed": seed})
        started = time.perf_counter()
        parsed = None
        if isinstance(self.engine, ChatEngine):
            asked = (progress.trajectory_id, progress.messages, self._tool_dicts, sampling)
            shown = [picture.image for picture, _ in progress.conversation.pictures]
            reply = await (self.engine.reply(*asked, shown) if shown else self.engine.reply(*asked))
            output, text, parsed = self._as_tokens(reply), reply.text, reply.parsed
        else:
            given = (progress.trajectory_id, progress.conversation.ids, sampling)
            if (images := progress.conversation.images) and isinstance(self.engine, VisionEngine):
                output = await self.engine.generate(*given, images)
            else:
                output = await self.engine.generate(*given)
            if len(output.token_ids) > max_tokens:
                raise EngineError(
                    f"the engine gave {len(output.token_ids)} tokens where max_tokens={max_tokens} was asked"
                )
            output = self._without_reserved(output, progress)
            text = self.template.decode(output.token_ids)
        progress.timing.generate_s += time.perf_counter() - started
        progress.conversation.add_assistant(turn, output)
        progress.texts.append(text)
        return output.finish_reason, parsed

    def _without_reserved(self, output: TokenOutput, progress: TrajectoryProgress) -> TokenOutput:
        """The turn up to the first token that only means something with pixels behind it, which the model has not."""
        tokens = self.template.image_tokens
        if tokens is None or tokens.reserved_ids.isdisjoint(output.token_ids):
            return output
        end = next(i for i, token_id in enumerate(output.token_ids) if token_id in tokens.reserved_ids)
        progress.error = "the model wrote an image's token itself; the turn is cut before it"
        return TokenOutput(token_ids=output.token_ids[:end], logprobs=output.logprobs[:end], finish_reason="length")

    def _as_tokens(self, reply: ChatReply) -> TokenOutput:
        """A chat server's turn in ids of the local tokenizer, with logprobs of 0.0."""
        tokenizer = self.engine.tokenizer
        end = tokenizer.eos_token or "" if reply.finish_reason == "stop" else ""
        ids = tokenizer.encode(reply.text + end, add_special_tokens=False)
        return TokenOutput(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason=reply.finish_reason)

    async def _answer(
        self, progress: TrajectoryProgress, session: TrajectoryTools, parsed: ParsedTurn, turn: int
    ) -> list[ToolMessage]:
        """Run the calls side by side; one message per call and per problem, in that order."""
        limit = self.limits.max_calls_per_turn
        running = [session.call(call, turn, i) for i, call in enumerate(parsed.calls[:limit])]
        started = time.perf_counter()
        results: list[Answer] = await asyncio.gather(*running)
        progress.add_tool_time(time.perf_counter() - started, [result.record for result in results])
        answers = [await self._message(result) for result in results]
        for index, call in enumerate(parsed.calls[limit:], start=limit):
            message = f"Not run: at most {limit} calls are run in one turn."
            answers.append(ToolMessage(message, progress.unrun(turn, index, call.name, ErrorKind.ARGUMENTS, message)))
        for index, problem in enumerate(parsed.problems, start=len(parsed.calls)):
            record = progress.unrun(turn, index, "", ErrorKind.PARSE, problem.message)
            answers.append(ToolMessage(self._plain(problem.message), record))
        progress.records += [answer.record for answer in answers]
        return answers

    async def _message(self, answer: Answer) -> ToolMessage:
        message = ToolMessage(self._plain(answer.response.text or ""), answer.record)
        images = answer.response.image
        if images and not self.sees:
            message.leave_out([_SEES_NOTHING] * len(images))
        elif images:
            message.pictures, problems = await asyncio.to_thread(pictures_of, images, self.template.image_tokens)
            message.leave_out(problems)
        return message

    def _plain(self, text: str) -> str:
        return text if self.template.image_tokens is None else self.template.image_tokens.plain(text)

    def _append(self, progress: TrajectoryProgress, turn: int, answers: list[ToolMessage]) -> bool:
        """Add the tool messages to the conversation; False when they leave no room to answer.

        Images go first, the last one before the others, each as a whole.
        """
        ended = self.template.has_ended(progress.conversation.response_ids)
        while len(ids := self._context_ids(answers, ended)) >= self._room(progress):
            if not leave_out_last(answers, _NO_ROOM):
                break
        progress.messages += [answer.as_chat() for answer in answers]
        if len(ids) >= self._room(progress):
            return False
        pictures = [picture for answer in answers for picture in answer.pictures]
        blocks = self._blocks(ids, pictures, len(progress.conversation))
        span = progress.conversation.add_context(turn, ids)
        progress.conversation.add_pictures(pictures, blocks)
        for answer in answers:
            answer.record.token_span = (span.start, span.end)
        return True

    def _context_ids(self, answers: list[ToolMessage], ended: bool) -> list[int]:
        messages = [answer.as_chat() for answer in answers]
        if self.template.image_tokens is None:
            return self.template.context_ids(without_images(messages), ended=ended)
        counts = [picture.tokens for answer in answers for picture in answer.pictures]
        return self.template.context_ids(messages, ended=ended, image_counts=counts)
