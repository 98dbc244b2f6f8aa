"""The rewards file: which parts a reward is made of, and how they add up."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from .validation import number

Finite = Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(number)]
PartName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Name = Annotated[str, Field(min_length=1)]
Aggregation = Literal["sum", "mean", "last", "max"]
Placement = Literal["final", "turn"]


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"{pair[0]} is larger than {pair[1]}")
    return pair


def _is_pattern(text: str) -> str:
    if not text or "*" in text[:-1]:
        raise ValueError("must be a data source, or the start of some with * at its end; no other * means anything")
    return text


Range = Annotated[tuple[Finite, Finite], AfterValidator(_rising)]
"""[lowest, highest]"""
Pattern = Annotated[str, AfterValidator(_is_pattern)]


class Gate(BaseModel):
    """A part counts only where another part, clipped but before weighting, lies in a range; else it is 0."""

    model_config = ConfigDict(extra="forbid")

    part: PartName
    at_least: Finite | None = None
    at_most: Finite | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least or at_most")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least: {self.at_least} is larger than at_most ({self.at_most}): it would never open")
        return self

    def is_open(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class Part(BaseModel):
    """What every part has.

    Attributes:
        weight: 0 logs the part and lets it earn nothing.
        clip: [lowest, highest] before weighting.
        only_if: see `Gate`.
        data_sources: patterns; elsewhere the part is left out.
    """

    model_config = ConfigDict(extra="forbid")

    weight: Finite = 1.0
    clip: Range | None = None
    only_if: Gate | None = None
    data_sources: list[Pattern] = Field(default_factory=lambda: ["*"], min_length=1)


class OutcomePart(Part):
    """The score function of the data source. Attributes: function: one by name, for every data source."""

    kind: Literal["outcome"]
    function: str | None = None


class FormatPart(Part):
    """1 or 0. Attributes: style: one marked answer, or `<think>…</think><answer>…</answer>`."""

    kind: Literal["format"]
    style: Literal["answer", "think_answer"] = "answer"


class OverlongPart(Part):
    """DAPO's soft punishment, 0 to -1. Attributes: count: the model's own tokens, or those of tools too."""

    kind: Literal["overlong"]
    max_tokens: Whole = Field(ge=1)
    buffer_tokens: Whole = Field(ge=1)
    count: Literal["generated", "all"] = "generated"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(f"buffer_tokens: {self.buffer_tokens} is larger than max_tokens ({self.max_tokens})")
        return self


class CallCostPart(Part):
    """OTC's reward for few calls, 0 to 1.

    Attributes:
        smoothing: the paper's c.
        optimal_calls: the paper's n, or the key of `extra_info` that holds it, or `group`: the fewest calls of the
            question's trajectories that answered rightly, as OTC-GRPO has it. A trajectory alone does not know it.
        tools: those that are counted; None counts all.
    """

    kind: Literal["call_cost"]
    smoothing: Finite = Field(default=4.0, gt=0)
    optimal_calls: Annotated[Whole, Field(ge=0)] | Name | None = None
    tools: list[str] | None = None

    @property
    def of_group(self) -> bool:
        """Whether it is known only when all trajectories of a question are."""
        return self.optimal_calls == "group"


class ToolErrorsPart(Part):
    """Minus the number of calls that failed through the model's doing. Attributes: cap: counts no more than these."""

    kind: Literal["tool_errors"]
    cap: int | None = Field(default=None, ge=1)


class VoidTurnPart(Part):
    """1 where a turn neither made a readable call nor answered. By default it is logged only."""

    kind: Literal["void_turn"]
    weight: Finite = 0.0


class ToolsPart(Part):
    """What the tools themselves gave, as `NAME/TOOL`: step rewards of calls, and whole-trajectory rewards.

    Attributes:
        aggregation: of a tool's step rewards, in the order of its calls.
        tool_weights: by tool; others count 1.
        cap: [lowest, highest] of each tool after aggregation.
        discount: a step reward counts `discount ** (turns after it)`.
        placement: the token that carries it for the trainer: the last of all, or of the turn that made the call.
    """

    kind: Literal["tools"]
    aggregation: Aggregation = "sum"
    tool_weights: dict[str, Finite] = Field(default_factory=dict)
    cap: Range | None = None
    discount: float = Field(default=1.0, ge=0, le=1)
    placement: Placement = "final"


class Service(BaseModel):
    """How a scoring server is asked.

    Attributes:
        timeout_s: of one attempt. retries: attempts after the first.
        concurrency: requests in flight per process.
        breaker_failures: failed samples in a row after which nothing is sent for `breaker_pause_s`.
        token_variable: the environment variable that holds a bearer token.
    """

    model_config = ConfigDict(extra="forbid")

    url: str = Field(pattern=r"^https?://[^/\s]+")
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    retries: int = Field(default=3, ge=0, le=20)
    concurrency: int = Field(default=32, ge=1)
    breaker_failures: int = Field(default=10, ge=1)
    breaker_pause_s: float = Field(default=30.0, gt=0, le=3600)
    token_variable: str | None = None

    @field_validator("url")
    @classmethod
    def _can_be_asked(cls, url: str) -> str:
        """What no request could ever reach is a wrong setting, and not a server that failed."""
        parts = urlsplit(url)  # raises ValueError for a bracket that is not closed
        if not (parts.hostname or "").strip(".") or any(char.isspace() for char in url) or parts.port == 0:
            raise ValueError("must be such as http://host:8090/score")
        return url


class ApiPart(Part):
    """A server of score functions, such as `rollbox reward serve`: POST to its address."""

    kind: Literal["api"]
    service: Service


class RewardModelPart(Part):
    """A sequence-classification reward model with one output: a local directory, or a pooling server.

    Attributes:
        model: a Hugging Face directory, or the served model's name where `service` is given.
        service: a server of a sequence classifier. engine: what it runs; the wires differ.
        tokenizer: the served model's directory, to write the conversation as token ids here. SGLang needs it; without
            it vLLM writes the conversation by its own chat template.
        max_tokens: longer conversations are cut at the front.
        batch_size: of the local model. device: such as cpu, cuda or cuda:1.
        sigmoid: squash the logit into 0 to 1.
    """

    kind: Literal["reward_model"]
    model: Name
    service: Service | None = None
    engine: Literal["vllm", "sglang"] = "vllm"
    tokenizer: str | None = None
    batch_size: int = Field(default=16, ge=1)
    max_tokens: int = Field(default=4096, ge=8)
    device: str = "cpu"
    sigmoid: bool = True

    @model_validator(mode="after")
    def _is_local_or_served(self) -> Self:
        foreign = {"engine", "tokenizer"} if self.service is None else {"batch_size", "device"}
        for name in sorted(foreign & self.model_fields_set):
            where = (
                "needs a `service`" if self.service is None else "is the local model's; leave it out with a `service`"
            )
            raise ValueError(f"{name}: {where}")
        if self.engine == "sglang" and self.tokenizer is None:
            raise ValueError("tokenizer: SGLang takes no conversations; name the model's directory, to write them here")
        return self


class RubricPart(Part):
    """A language model judges by a rubric and ends with `Score: N`.

    Attributes:
        service: an OpenAI-compatible server; `/v1/chat/completions` is added. model: its name there.
        rubric: what is judged, in words. lowest, highest: the scale it is told, mapped to 0 to 1.
        extra_body: further keys of the request, such as vLLM's `structured_outputs` or `chat_template_kwargs`.
    """

    kind: Literal["rubric"]
    service: Service
    model: str
    rubric: str = Field(min_length=1)
    lowest: int = 0
    highest: int = 10
    max_tokens: int = Field(default=1024, ge=16)
    extra_body: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _scale(self) -> Self:
        taken = sorted({"messages", "model", "stream"} & set(self.extra_body))
        if taken:
            raise ValueError(f"extra_body.{taken[0]}: is not to be replaced")
        if self.lowest >= self.highest:
            raise ValueError(f"lowest: {self.lowest} must be smaller than highest ({self.highest})")
        return self


class StepsPart(Part):
    """A process reward: each step of the reasoning gets a score, at the token where it ends.

    Attributes:
        delimiter: what stands between steps; from the 256th on the rest of a turn is one step.
        service: answers `/v1/score/batch` with one score a step. aggregation: of the steps' scores to the total.
    """

    kind: Literal["steps"]
    delimiter: str = Field(default="\n\n", min_length=1)
    service: Service
    aggregation: Literal["sum", "mean"] = "mean"


AnyPart = Annotated[
    OutcomePart
    | FormatPart
    | OverlongPart
    | CallCostPart
    | ToolErrorsPart
    | VoidTurnPart
    | ToolsPart
    | ApiPart
    | RewardModelPart
    | RubricPart
    | StepsPart,
    Field(discriminator="kind"),
]


class RewardConfig(BaseModel):
    """The whole file.

    Attributes:
        parts: by name, in the order in which they are logged. total = sum of weight * part.
        weights: by part; they replace the parts' own.
        clip: [lowest, highest] of the total.
        modules: the user's Python files or modules of score functions, loaded in every process.
        outcomes: pattern of data sources -> name of a registered score function, instead of the registry's choice.
        sandbox_url: of the sandbox that score functions use; `embedded` starts one when it is needed.
    """

    model_config = ConfigDict(extra="forbid")

    parts: dict[PartName, AnyPart] = Field(min_length=1)
    weights: dict[str, Finite] = Field(default_factory=dict)
    clip: Range | None = None
    modules: list[str] = Field(default_factory=list)
    outcomes: dict[Pattern, str] = Field(default_factory=dict)
    sandbox_url: str = "embedded"

    @field_validator("parts", mode="before")
    @classmethod
    def _kind_by_name(cls, parts: Any) -> Any:
        """A part whose name is a kind need not repeat it."""
        if not isinstance(parts, dict):
            return parts
        return {
            name: {"kind": name, **(part or {})} if part is None or isinstance(part, dict) else part
            for name, part in parts.items()
        }

    @model_validator(mode="after")
    def _refers_to_parts(self) -> Self:
        known = ", ".join(self.parts)
        for name in self.weights:
            if name not in self.parts:
                raise ValueError(f"weights: there is no part {name!r}; there are: {known}")
        for name, part in self.parts.items():
            gate = part.only_if
            if gate is not None and gate.part not in self.parts:
                raise ValueError(f"parts.{name}.only_if.part: there is no part {gate.part!r}; there are: {known}")
            if gate is not None and gate.part in self.group_parts:
                raise ValueError(
                    f"parts.{name}.only_if.part: {gate.part!r} is known only of the group, after the others"
                )
        return self._checked_gates()

    def _checked_gates(self) -> Self:
        for name, part in self.parts.items():
            seen, at = {name}, part.only_if
            while at is not None:
                if at.part in seen:
                    raise ValueError(f"parts.{name}.only_if: the gates go round in a circle at {at.part!r}")
                seen.add(at.part)
                at = self.parts[at.part].only_if
        return self

    @property
    def group_parts(self) -> dict[str, CallCostPart]:
        """Parts that look at all trajectories of a question, by name."""
        return {name: part for name, part in self.parts.items() if isinstance(part, CallCostPart) and part.of_group}

    def weight_of(self, name: str) -> float:
        """The weight that counts."""
        return self.weights.get(name, self.parts[name].weight)
