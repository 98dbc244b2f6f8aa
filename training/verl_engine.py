"""verl's inference servers as an engine of our rollout loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from ..rollout.chat_template import Tokenizer
from ..schemas.errors import ConfigError, EngineError
from ..schemas.generation import ImageInput, SamplingParams, TokenOutput

_SUMMED_FIELDS = ("spec_num_draft_tokens", "spec_num_accepted_tokens", "spec_num_verify_steps")


@dataclass(slots=True)
class Generations:
    """What verl told beside the tokens of one trajectory's turns.

    Attributes:
        sampling: verl's sampling parameters, sent as they are with our `max_tokens`.
        extra_fields: verl's own (weight versions, …); None where no turn was generated.
        has_logprobs: whether every turn came with log-probabilities.
        num_preempted: -1 when the server does not say.
        routed_experts: of the last turn, which covers the whole sequence.
    """

    sampling: Mapping[str, Any]
    extra_fields: dict[str, Any] | None = None
    has_logprobs: bool = True
    num_preempted: int = -1
    routed_experts: Any = None

    def add(self, output: Any) -> None:
        """Take in a `TokenOutput` of verl."""
        extra = dict(output.extra_fields)
        if self.extra_fields is None:
            self.extra_fields = extra
        else:
            if extra.get("max_global_steps") is not None:
                self.extra_fields["max_global_steps"] = extra["max_global_steps"]
            for key in _SUMMED_FIELDS:
                if key in extra and key in self.extra_fields:
                    self.extra_fields[key] += extra[key]
        self.has_logprobs = self.has_logprobs and output.log_probs is not None
        if output.num_preempted is not None:
            self.num_preempted = max(self.num_preempted, 0) + output.num_preempted
        if output.routed_experts is not None:
            self.routed_experts = output.routed_experts


@dataclass(slots=True)
class VerlEngine:
    """Sends a trajectory's turns to verl's servers; one for each agent-loop worker.

    Args:
        servers: verl's `LLMServerClient`; it keeps one `request_id` on one server.
        max_prompt: tokens of the prompt. max_response: tokens of the response.
        processor: the model's multimodal processor, if it has one. processor_kwargs: what verl calls it with.
    """

    servers: Any
    tokenizer: Tokenizer
    max_prompt: int
    max_response: int
    processor: Any = None
    processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_context: int = field(init=False)
    _open: dict[str, Generations] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.max_context = self.max_prompt + self.max_response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass  # the servers are verl's

    @contextmanager
    def trajectory(self, trajectory_id: str, sampling: Mapping[str, Any]) -> Iterator[Generations]:
        """For as long as it is open, `generate` takes this trajectory's turns and collects what verl tells of them."""
        self._open[trajectory_id] = Generations(sampling)
        try:
            yield self._open[trajectory_id]
        finally:
            del self._open[trajectory_id]

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling: SamplingParams, images: Sequence[ImageInput] = ()
    ) -> TokenOutput:
        """Sample one turn; see `rollout.engines.base.VisionEngine`. Temperature, top-k and top-p are verl's.

        Raises:
            EngineError: the server failed, gave the request up, or answered without a token.
            ConfigError: the prompt of the first turn is too long. verl would cut it from the left, tool list first.
        """
        generations = self._open[request_id]
        if generations.extra_fields is None and len(prompt_ids) > self.max_prompt:
            raise ConfigError(
                f"the prompt has {len(prompt_ids)} tokens, tool list included, and data.max_prompt_length is "
                f"{self.max_prompt}; raise it or set data.filter_overlong_prompts=True"
            )
        parameters = {**generations.sampling, "max_tokens": sampling.max_tokens}
        seen: dict[str, Any] = {}
        if images:
            pixels = [image.pixels for image in images]
            seen = {"image_data": pixels, "mm_processor_kwargs": dict(self.processor_kwargs)}
        try:
            output = await self.servers.generate(
                request_id=request_id, prompt_ids=prompt_ids, sampling_params=parameters, **seen
            )
        except Exception as error:  # whatever Ray or the server raises masks this trajectory, not the run
            raise EngineError(f"generation failed: {type(error).__name__}: {error}") from error
        if output.stop_reason in ("aborted", "abort"):
            raise EngineError("the inference server gave the request up")
        ids = list(output.token_ids)[: sampling.max_tokens]
        if not ids:
            raise EngineError("the inference server answered without a token")
        generations.add(output)
        logprobs = list(output.log_probs)[: len(ids)] if output.log_probs is not None else [0.0] * len(ids)
        # verl says `completed` for both a stop token and the limit.
        cut = len(ids) >= sampling.max_tokens and ids[-1] != self.tokenizer.eos_token_id
        try:
            return TokenOutput(token_ids=ids, logprobs=logprobs, finish_reason="length" if cut else "stop")
        except ValueError as error:
            raise EngineError(f"the generation is not usable: {error}") from error
