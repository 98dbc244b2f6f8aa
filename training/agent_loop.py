"""`rollbox_agent`: verl's agent loop that runs ours."""

from __future__ import annotations

from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, ToolListWrap

from ..rollout.loop import RolloutLoop
from ..rollout.parsers import get_parser
from ..schemas.generation import SamplingParams
from ..schemas.message import image_parts
from ..tools.base import BaseTool
from ..tools.registry import by_name, load_tools
from .foreign_tools import as_our_tool
from .settings import read_settings
from .shared_rewards import SharedRewards
from .trajectory_output import make_output
from .verl_engine import VerlEngine
from .verl_rows import sample_of, selected_tools


class RollboxAgentLoop(AgentLoopBase):
    """Runs one trajectory with `rollout.loop`: tools that live as long as it, exact tokens, faults told apart.

    verl makes one of these for every trajectory; what they share is made once for each worker.

    Raises:
        ConfigError: the `rollbox` section, a tool, the tool-call format or the chat template cannot be used.
    """

    def __init__(self, *args: Any, tools: ToolListWrap | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        shared = _shared.get(self.server_manager)
        if shared is None:
            shared = _shared[self.server_manager] = WorkerParts(self, tools.tools if tools else [])
        self._parts = shared

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Roll out a row of the data set.

        Raises:
            ConfigError: the row cannot be rolled out (see `verl_rows`, `verl_engine`). verl logs it and goes on without
                the row's group.
        """
        parts = self._parts
        sample = sample_of(kwargs, await self._prompt_images(kwargs))
        loop = parts.loop_for(selected_tools(kwargs, parts.tool_names))
        # Under full_determinism verl's servers take the request id for the seed of a request.
        deterministic = self.rollout_config.get("full_determinism", False)
        trajectory_id = f"det-{kwargs.get('priority', 0)}" if deterministic else uuid4().hex
        with parts.engine.trajectory(trajectory_id, sampling_params) as generations:
            trajectory = await loop.run(sample, trajectory_id)
        if generations.extra_fields is None:
            # Nothing was generated; verl's trainer still counts by weight version, which is the last step's.
            step = max(int(kwargs.get("global_steps") or 1) - 1, 0)
            generations.extra_fields = {"global_steps": step, "min_global_steps": step, "max_global_steps": step}
        if parts.rewards is not None:
            await parts.rewards.score_into(trajectory)
        return make_output(
            trajectory,
            generations,
            tool_weight=parts.settings.rewards.tool,
            rewards_at_tokens=parts.rewards_at_tokens,
            eos_token_id=self.tokenizer.eos_token_id,
            processor_kwargs=parts.engine.processor_kwargs,
        )

    async def _prompt_images(self, row: dict[str, Any]) -> list[Any]:
        """The images of the prompt as verl's data set class reads and scales them; the actor sees the same."""
        messages = list(row.get("raw_prompt", ()))
        if not image_parts(messages):
            return []
        found = await self.process_multi_modal_info(messages)
        return list(found.get("images") or [])


class WorkerParts:
    """What the trajectories of one agent-loop worker share."""

    def __init__(self, agent_loop: RollboxAgentLoop, tools: list[Any]) -> None:
        rollout = agent_loop.rollout_config
        self.settings = read_settings(agent_loop.config)
        self.engine = VerlEngine(
            agent_loop.server_manager,
            agent_loop.tokenizer,
            int(rollout.prompt_length),
            int(rollout.response_length),
            agent_loop.processor,
            agent_loop._get_mm_processor_kwargs(),
        )
        # Only here is the whole trajectory known: a reward manager sees its end.
        rewards = self.settings.rewards
        self.rewards = None if rewards.file is None else SharedRewards.of_settings(rewards)
        self.rewards_at_tokens = bool(agent_loop.config.trainer.get("use_v1", False))
        self._tools: dict[str, BaseTool] = (
            by_name(map(as_our_tool, tools), "multi_turn.tool_config_path")
            if self.settings.tools_config_file is None
            else load_tools(self.settings.tools_config_file)
        )
        self._format = str(rollout.multi_turn.format).removeprefix("rollbox_")
        self._limits = self.settings.limits(int(rollout.response_length))
        self._loops: dict[tuple[str, ...], RolloutLoop] = {}

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def loop_for(self, names: tuple[str, ...]) -> RolloutLoop:
        """The loop with these tools; rendering and checking the chat template once for each choice."""
        if names not in self._loops:
            tools = {name: self._tools[name] for name in names}
            parser = get_parser(self._format, [tool.tool_schema for tool in tools.values()])
            sampling = SamplingParams(max_tokens=self._limits.max_response_tokens)
            self._loops[names] = RolloutLoop(
                *(self.engine, tools, parser, sampling, self._limits), processor_kwargs=self.engine.processor_kwargs
            )
        return self._loops[names]


_shared: WeakKeyDictionary[Any, WorkerParts] = WeakKeyDictionary()
