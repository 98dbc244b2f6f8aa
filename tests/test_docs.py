"""README and docs/ as a reader takes them: commands, tables of settings and examples are those of the code."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.core
from pydantic import BaseModel

from rollbox.cli.main import app
from rollbox.retrieval.server.settings import RetrieverSettings
from rollbox.rewards.registry import REGISTRY, load_built_in
from rollbox.rollout.parsers import PARSERS
from rollbox.schemas.reward_config import AnyPart, RewardConfig, Service
from rollbox.schemas.run import RunLimits
from rollbox.tools.calculator.tool import CalculatorConfig
from rollbox.tools.check import check_tools
from rollbox.tools.mcp.tool import McpConfig, McpServerConfig
from rollbox.tools.python_executor import PythonExecutorConfig
from rollbox.tools.registry import load_tools
from rollbox.tools.search import SearchConfig
from rollbox.training.settings import TrainingSettings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
IN_WORDS = {"none": None, "no cap": 0, "false": False, "true": True}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, str]]:
    """(page, `rollbox …` as it is to be typed), of code blocks and of indented lines."""
    for path in PAGES:
        for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            found = re.match(r"(?:    )?(?:\.venv/bin/)?rollbox ([a-z].*)", line)
            if found:
                yield path.name, found[1]


@pytest.mark.parametrize(("name", "line"), list(commands()))
def test_a_command_is_one_that_can_be_typed(name: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[-1] == "&":
        words.pop()
    command: Any = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_parser(command.context_class(command)).parse_args(words)


def settings_of(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Names, as docs write them, with their defaults."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= settings_of(field.annotation, f"{prefix}{name}.")
        else:
            found[prefix + name] = field.get_default(call_default_factory=True)
    return found


def defaults_in(text: str) -> Iterator[tuple[str, str]]:
    """(name, default) of the rows of a table whose first two cells are such."""
    for names, defaults in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", text, re.MULTILINE):
        every = [name.removeprefix("--").replace("-", "_") for name in re.findall(r"`([^`]+)`", names)]
        prefix = every[0].rpartition(".")[0]
        yield from zip(
            (prefix + name if name[0] == "." else name for name in every), defaults.split(", "), strict=False
        )


@pytest.mark.parametrize(
    ("name", "heading", "model", "in_words"),
    [
        ("sandbox.md", "## Limits", RunLimits, {"cpu_s"}),
        ("retrieval.md", "## Serving", RetrieverSettings, {"threads"}),
        ("training.md", "## The `rollbox:` section", TrainingSettings, {"resample.keep"}),
    ],
)
def test_a_table_has_the_defaults_of_the_code(
    name: str, heading: str, model: type[BaseModel], in_words: set[str]
) -> None:
    known = settings_of(model)
    compared = set()
    for setting, said in defaults_in(page(name).partition(f"\n{heading}")[2].partition("\n## ")[0]):
        if setting in known and setting not in in_words and said:
            default = IN_WORDS[said] if said in IN_WORDS else said.replace(",", "").replace(" ", "")
            assert str(known[setting]) in (str(default), f"{default}.0"), setting
            compared.add(setting)
    assert len(compared) >= 9
    if model is not RetrieverSettings:  # whose options are more than its settings
        assert set(known) - compared - in_words <= {"rewards.file", "reward_model", "resample"}


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("tools.md", [CalculatorConfig, PythonExecutorConfig, SearchConfig, McpConfig, McpServerConfig]),
        ("rewards.md", [RewardConfig, Service, *get_args(get_args(AnyPart)[0])]),
    ],
)
def test_a_page_names_every_setting(name: str, models: list[type[BaseModel]]) -> None:
    words = set(re.findall(r"\w+", page(name)))
    assert {key for model in models for key in model.model_fields} - words == set()


def test_score_functions_and_parsers_are_those_that_there_are() -> None:
    load_built_in()
    built_in = {entry.pattern for entry in REGISTRY.entries() if entry.is_built_in}
    assert {pattern for pattern in built_in if f"`{pattern}`" not in page("rewards.md")} == set()
    assert set(re.findall(r"^\| `(\w+)` \|", page("parsers.md"), re.MULTILINE)) == set(PARSERS)


async def test_the_tools_of_the_docs_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, own_class = re.findall(r"```python\n(.*?)```", page("tools.md"), re.DOTALL)
    (tmp_path / "my_tools.py").write_text(f"{function}\n\n{own_class}")
    (tmp_path / "calculator.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page("tools.md"), re.DOTALL)[0])
    (tmp_path / "own.yaml").write_text("tools: [{class_name: my_tools.population}, {class_name: my_tools.WordCount}]")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    try:
        for file, arguments, answers in (
            ("calculator.yaml", {"calculator": {"expression": "17 * 23"}}, ["391"]),
            ("own.yaml", {"population": {"country": "Peru"}, "word_count": {"text": "two words"}}, ["32971846.0", "2"]),
        ):
            checked = await check_tools(load_tools(tmp_path / file), arguments)
            assert [(each.text, each.error) for each in checked] == [(answer, None) for answer in answers]
    finally:
        sys.modules.pop("my_tools", None)
