"""The tools YAML: what is wrong is named with file, entry and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.tools.base import BaseTool
from rollbox.tools.registry import load_tools

SHIPPED = Path(__file__).parents[2] / "tools_config"
CALCULATOR = "rollbox.tools.calculator.CalculatorTool"


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_files_load(file: Path) -> None:
    tools = load_tools(file)
    assert tools
    for name, tool in tools.items():
        assert tool.name == name
        assert tool.tool_schema.function.description
        # What the YAML says and what the class says must not drift apart.
        default = tool.get_openai_tool_schema()
        assert default is not None
        assert set(default.function.parameters.properties) == set(tool.tool_schema.function.parameters.properties)


def test_a_tool_of_the_users_own_module_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_tools.py").write_text(
        "from rollbox.tools.base import BaseTool\n"
        "class Echo(BaseTool):\n"
        "    default_schema = {'type': 'function', 'function': {'name': 'echo'}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n  - class_name: my_own_tools.Echo\n    config: {type: native}\n")
    assert isinstance(load_tools(file)["echo"], BaseTool)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools: [", "not YAML"),
        ("- a", "must hold a mapping with the key 'tools'"),
        ("tools: []", "tools: List should have at least 1 item"),
        ("tols: []", "tools: Field required"),
        ("tools: [{config: {}}]", "tools.0.class_name: Field required"),
        ("tools: [{class_name: nodots}]", "tools.0.class_name: must be 'package.module.ClassName'"),
        ("tools: [{class_name: not_there.Tool}]", "tools.0.class_name: cannot import 'not_there'"),
        (
            "tools: [{class_name: rollbox.tools.calculator.CalculatorTol}]",
            "has no class 'CalculatorTol'; did you mean 'CalculatorTool'?",
        ),
        ("tools: [{class_name: pathlib.Path}]", "'pathlib.Path' is not a subclass of rollbox.tools.base.BaseTool"),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{precison: 3}}}}]", "config: precison: Extra inputs"),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{precision: few}}}}]", "config: precision: Input should be"),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{type: mcp}}}}]", "config.type: must be 'native' (got 'mcp')"),
        (f"tools: [{{class_name: {CALCULATOR}, conifg: {{}}}}]", "tools.0.conifg: Extra inputs"),
        (f"tools: [{{class_name: {CALCULATOR}, tool_schema: {{type: function}}}}]", "tools.0.tool_schema.function"),
        (
            f"tools: [{{class_name: {CALCULATOR}}}, {{class_name: {CALCULATOR}}}]",
            "two tools are named 'calculator'",
        ),
    ],
)
def test_wrong_files_are_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_tools(file)
    assert said in str(error.value)
    assert str(file) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_tools(tmp_path / "none.yaml")


def test_c01_a_placeholder_sandbox_url_stops_at_start_up(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(
        "tools: [{class_name: rollbox.tools.python_executor.PythonExecutorTool, config: {sandbox_url: sandbox_url}}]"
    )
    with pytest.raises(ConfigError, match=r"sandbox_url.*sandbox_url"):
        load_tools(file)
