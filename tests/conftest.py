"""Fixtures that many tests share: shared cases, a tiny model of random weights, an engine with scripted text."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml
from hypothesis import HealthCheck, settings

from rollbox.rollout.chat_template import Tokenizer
from rollbox.schemas.errors import EngineError
from rollbox.schemas.generation import SamplingParams, TokenOutput

from .docker.fixtures import compose, container, docker_env
from .rollout.vision_models import MAKERS

__all__ = ["compose", "container", "docker_env"]  # fixtures of the suites that run on the container too
# These run in environments of their own (`make test-verl`, `make test-verl-compat`, `make test-vllm`).
_NEEDED = {"verl": "verl", "verl_compat": "verl", "vllm": "vllm"}
collect_ignore = [folder for folder, module in _NEEDED.items() if importlib.util.find_spec(module) is None]
_WITH_IMAGE_S = 1200
# No example fails for being slow: the machine may be busy.
settings.register_profile("rollbox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rollbox")
CASES_FILE = Path(__file__).parent / "cases" / "cases.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "address of a sandbox server to run the adversarial and conformance suites against, and nothing else"
    parser.addoption("--sandbox-url", default=os.environ.get("ROLLBOX_TEST_SANDBOX_URL", ""), help=help_text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "docker" in item.keywords:  # the first of them waits for the engine, the base and the image
            item.add_marker(pytest.mark.timeout(_WITH_IMAGE_S))


@pytest.fixture(scope="session")
def cases() -> dict[str, Any]:
    """The failure cases by the short part of their id, such as `S01`."""
    found = yaml.safe_load(CASES_FILE.read_text(encoding="utf-8"))
    return {case["id"].split("-")[0]: case for case in found}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """The demo model's tokenizer: ChatML with hermes tool calls."""
    from rollbox.demo.tokenizer import build_tokenizer

    return build_tokenizer()


@pytest.fixture(scope="session")
def random_model_dir(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved Qwen2 model of random weights: what it says means nothing, how it computes is real."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32, the smallest that vLLM's CPU kernels take
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    directory = tmp_path_factory.mktemp("random-model")
    Qwen2ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session", params=list(MAKERS))
def vision_model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model that sees, of random weights."""
    directory = tmp_path_factory.mktemp("vision-model") / str(request.param)
    MAKERS[request.param](directory)
    return directory


class ScriptedEngine:
    """Says given texts turn by turn, in place of a model server, so that a case is deterministic.

    A text that ends in `…` is cut by the length limit there; any other ends with the end token. An exception in the
    script is raised.
    """

    def __init__(self, tokenizer: Any, script: list[str | Exception], max_context: int = 4096) -> None:
        self.tokenizer: Tokenizer = tokenizer
        self.max_context = max_context
        self.script = list(script)
        self.prompts: list[list[int]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: SamplingParams) -> TokenOutput:
        self.prompts.append(list(prompt_ids))
        if not self.script:
            raise EngineError("the script is over")
        text = self.script.pop(0)
        if isinstance(text, Exception):
            raise text
        cut = text.endswith("…")
        ids = self.tokenizer.encode(text.removesuffix("…"), add_special_tokens=False)
        if not cut:
            assert self.tokenizer.eos_token_id is not None
            ids = [*ids, self.tokenizer.eos_token_id]
        cut = cut or len(ids) > sampling.max_tokens
        ids = ids[: sampling.max_tokens]
        return TokenOutput(token_ids=ids, logprobs=[-0.25] * len(ids), finish_reason="length" if cut else "stop")


@pytest.fixture
def scripted_engine(tokenizer: Any) -> Any:
    """Makes a `ScriptedEngine` for a script."""

    def make(script: list[str | Exception], max_context: int = 4096) -> ScriptedEngine:
        return ScriptedEngine(tokenizer, script, max_context)

    return make
