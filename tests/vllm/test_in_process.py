"""What only vLLM in process can get wrong: its start and its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbox.rollout.engines.vllm import VllmEngine
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.schemas.generation import SamplingParams


@pytest.mark.parametrize("wrong", [{"no_such_argument": 1}, {"dtype": "float99"}, {"max_model_len": 10**6}])
async def test_a_wrong_argument_is_said_at_start(model_dir: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"vllm: does not start with .*tiny: .*\w"):
        async with VllmEngine(model_dir, engine_args=wrong):
            pass


async def test_outside_its_context_it_says_so(model_dir: Path) -> None:
    with pytest.raises(EngineError, match="use it inside 'async with'"):
        await VllmEngine(model_dir).generate("x", [5], SamplingParams())
