"""Before a run takes its machines: does everything that it needs work together?

Each check raises `ConfigError` that says what is wrong and how to mend it, or returns a line for the user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
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
from .check_data import DataRow, check_agent_names, check_batch_size, data_rows
from .check_lengths import check_lengths
from .check_resume import check_resume
from .check_rewards import check_reward_settings, check_rewards
from .check_sampler import check_sampler
from .example_call import example_arguments, written_call
from .reachable_tools import check_agent_loop, check_response_length
from .rehearsal import RehearsalEngine
from .settings import TrainingSettings, read_settings


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
    rows = {key: data_rows(config, key) for key in ("train_files", "val_files")}
    check_batch_size(config, rows["train_files"])
    loops = [row.columns.get("agent_name") for row in rows["train_files"]]
    check_agent_loop(rollout, loops)
    check_response_length(rollout, loops)
    check_reward_settings(config, settings)
    check_sampler(config, settings)
    tokenizer = _tokenizer(config)
    check_lengths(config)
    tools = _tools(config, settings)
    every_row = [row for found in rows.values() for row in found]
    check_agent_names(rollout, every_row, tuple(tools))
    lines = check_resume(config)
    async with contextlib.AsyncExitStack() as stack:
        for tool in tools.values():
            stack.push_async_callback(tool.aclose)
        lines.append(await check_tools(tools, settings))
        template = ChatTemplate(tokenizer, [tool.tool_schema for tool in tools.values()])
        lines.append(check_prompts(template, tools, rows, config))
        lines.append(await check_rollout(config, settings, tokenizer, tools, every_row[0].sample))
    return lines + await check_rewards(config, settings, every_row)


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


def check_prompts(
    template: ChatTemplate, tools: Mapping[str, BaseTool], rows: Mapping[str, Sequence[DataRow]], config: Any
) -> str:
    """Every tool is shown in the prompt, and the prompts fit."""
    limit = int(config.data.max_prompt_length)
    longest = looked_at = 0
    for key, found in rows.items():
        fitting = 0
        for row in found:
            tokens = len(template.prompt_ids(row.sample.messages))
            longest, looked_at, fitting = max(longest, tokens), looked_at + 1, fitting + (tokens <= limit)
            if tokens > limit and not config.data.filter_overlong_prompts:
                raise ConfigError(
                    f"data: the prompt of row {row.name} has {tokens} tokens, tool list included, and "
                    f"data.max_prompt_length is {limit}; raise it or set data.filter_overlong_prompts=True"
                )
        if not fitting:
            raise ConfigError(
                f"data.{key}: each of the {len(found)} prompts looked at is longer than "
                f"data.max_prompt_length={limit}, tool list included, and filter_overlong_prompts would leave them "
                "all out; raise it"
            )
    _check_shown(template, tools, next(iter(rows.values()))[0].sample)
    return f"prompts: {looked_at} rows looked at, {longest} of {limit} tokens at most, every tool shown"


def _check_shown(template: ChatTemplate, tools: Mapping[str, BaseTool], sample: Sample) -> None:
    shown = template.decode(template.prompt_ids(sample.messages))
    for name in tools:
        if name not in shown:
            raise ConfigError(
                f"chat template: it does not show the tool {name!r} to the model; use a template that takes tools, or "
                "describe the tools in the prompts and leave out multi_turn.tool_config_path"
            )


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
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=bool(model.get("trust_remote_code", False)))
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
