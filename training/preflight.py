"""Before a run takes its machines: does everything that it needs work together?

Each check raises `ConfigError` that says what is wrong and how to mend it, or returns a line for the user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ..rollout.chat_template import ChatTemplate, Tokenizer
from ..rollout.loop import RolloutLoop
from ..rollout.parsers import get_parser
from ..schemas.errors import ConfigError
from ..schemas.generation import SamplingParams
from ..schemas.tool import ToolCall
from ..schemas.trajectory import Sample, StopReason, Trajectory
from ..tools.base import BaseTool
from ..tools.dispatch import ToolBox
from ..tools.registry import load_tools
from .algorithms.settings import settings_of as estimator_settings
from .check_rewards import check_reward_settings, check_rewards
from .check_sampler import check_sampler
from .example_call import example_arguments, written_call
from .reachable_tools import check_agent_loop, check_response_length
from .rehearsal import RehearsalEngine
from .settings import TrainingSettings, read_settings
from .verl_data import read_rows
from .verl_rows import sample_of

_ROWS = 256


async def preflight(config: Any) -> list[str]:
    """Check a composed configuration.

    Returns:
        One line for each check that was passed.

    Raises:
        ConfigError: something does not work.
    """
    settings = read_settings(config)
    estimator_settings(config.algorithm)
    rollout = config.actor_rollout_ref.rollout
    loops = _agent_names(config)
    check_agent_loop(rollout, loops)
    check_response_length(rollout, loops)
    check_reward_settings(config, settings)
    check_sampler(config, settings)
    tokenizer = _tokenizer(config)
    tools = _tools(config, settings)
    lines = []
    async with contextlib.AsyncExitStack() as stack:
        for tool in tools.values():
            stack.push_async_callback(tool.aclose)
        lines.append(await check_tools(tools, settings))
        template = ChatTemplate(tokenizer, [tool.tool_schema for tool in tools.values()])
        samples = [sample for key in ("train_files", "val_files") for sample in _samples(config, key)]
        lines.append(check_prompts(template, tools, samples, config))
        lines.append(await check_rollout(config, settings, tokenizer, tools, samples[0]))
    return lines + await check_rewards(config, settings, samples)


async def check_tools(tools: Mapping[str, BaseTool], settings: TrainingSettings) -> str:
    """Call each tool once, with arguments made from its schema; an answer that refuses them is an answer."""
    times = []
    async with ToolBox(tools, settings.limits(1).dispatch).trajectory("preflight") as session:
        for name, tool in tools.items():
            call = ToolCall(name=name, arguments=example_arguments(tool.tool_schema))
            answer = await session.call(call, 0, 0)
            if answer.record.is_infra:
                raise ConfigError(
                    f"tool {name!r} does not answer: {answer.record.error}. Is its server running, and its address in "
                    "the tools file right?"
                )
            times.append(f"{name} {answer.record.queue_ms + answer.record.run_ms:.0f} ms")
    return f"tools answer: {', '.join(times)}"


def check_prompts(template: ChatTemplate, tools: Mapping[str, BaseTool], samples: list[Sample], config: Any) -> str:
    """Every tool is shown in the prompt, and the prompts fit."""
    limit = int(config.data.max_prompt_length)
    longest = 0
    for sample in samples:
        ids = template.prompt_ids(sample.messages)
        longest = max(longest, len(ids))
        if len(ids) > limit and not config.data.filter_overlong_prompts:
            raise ConfigError(
                f"data: the prompt of row {sample.sample_id} has {len(ids)} tokens, tool list included, and "
                f"data.max_prompt_length is {limit}; raise it or set data.filter_overlong_prompts=True"
            )
    shown = template.decode(template.prompt_ids(samples[0].messages))
    for name in tools:
        if name not in shown:
            raise ConfigError(
                f"chat template: it does not show the tool {name!r} to the model; use a template that takes tools, or "
                "describe the tools in the prompts and leave out multi_turn.tool_config_path"
            )
    return f"prompts: {len(samples)} rows looked at, {longest} of {limit} tokens at most, every tool shown"


async def check_rollout(
    config: Any, settings: TrainingSettings, tokenizer: Tokenizer, tools: Mapping[str, BaseTool], sample: Sample
) -> str:
    """A rehearsal: a call as the chat template writes it must be read, run and masked, token by token."""
    if not tools:
        return "no tools: nothing to rehearse"
    rollout = config.actor_rollout_ref.rollout
    name, tool = next(iter(tools.items()))
    arguments = example_arguments(tool.tool_schema)
    schemas = [each.tool_schema for each in tools.values()]
    parser = get_parser(str(rollout.multi_turn.format).removeprefix("rollbox_"), schemas)
    text = written_call(tokenizer, schemas, name, arguments)
    calls = parser.parse(text).calls
    if [(call.name, call.arguments) for call in calls] != [(name, arguments)]:
        raise ConfigError(
            f"multi_turn.format={rollout.multi_turn.format}: it does not read a call as the model's chat template "
            f"writes one ({text[:160]!r}); choose the model's own format"
        )
    engine = RehearsalEngine(tokenizer, [text, "#### 1"], int(rollout.prompt_length) + int(rollout.response_length))
    limits = settings.limits(int(rollout.response_length))
    sampling = SamplingParams(max_tokens=limits.max_response_tokens)
    trajectory = await RolloutLoop(engine, tools, parser, sampling, limits).run(sample)
    _check_masks(trajectory, engine)
    return f"rehearsal: {len(trajectory.response_ids)} tokens, {sum(trajectory.response_mask)} of them trained"


def _check_masks(trajectory: Trajectory, engine: RehearsalEngine) -> None:
    if trajectory.infra_failed or trajectory.stop_reason is not StopReason.ANSWERED:
        raise ConfigError(
            f"rehearsal: a trajectory of one call ended with {trajectory.stop_reason.value!r}"
            f"{f' ({trajectory.error})' if trajectory.error else ''}; is data.max_response_length large enough?"
        )
    trained = [token for token, bit in zip(trajectory.response_ids, trajectory.response_mask, strict=True) if bit]
    if trained != engine.said:
        raise ConfigError("rehearsal: the tokens that are trained are not those that were sampled")


def _tokenizer(config: Any) -> Tokenizer:
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    path = model.get("tokenizer_path") or model.path
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as error:
        raise ConfigError(f"actor_rollout_ref.model.path: cannot load the tokenizer of {path!r}: {error}") from error
    if model.get("custom_chat_template"):
        tokenizer.chat_template = model.custom_chat_template
    if tokenizer.chat_template is None:
        raise ConfigError(f"model {path!r}: its tokenizer has no chat template; set model.custom_chat_template")
    return cast(Tokenizer, tokenizer)


def _tools(config: Any, settings: TrainingSettings) -> dict[str, BaseTool]:
    path = settings.tools_config_file or config.actor_rollout_ref.rollout.multi_turn.tool_config_path
    if not path:
        return {}
    return load_tools(Path(path))


def _agent_names(config: Any) -> list[str | None]:
    files = config.data.train_files
    paths = [Path(file) for file in ([files] if isinstance(files, str) else files)]
    return [row.get("agent_name") for path in paths for row in read_rows(path, "data.train_files", _ROWS)]


def _samples(config: Any, key: str) -> Iterator[Sample]:
    files = config.data[key]
    for file in [files] if isinstance(files, str) else files:
        for number, row in enumerate(read_rows(Path(file), f"data.{key}", _ROWS)):
            prompt = row.get(config.data.get("prompt_key", "prompt"))
            yield sample_of({**row, "raw_prompt": prompt or [], "uid": f"{number} of {file}"})
