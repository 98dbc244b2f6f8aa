"""The tools YAML: what is wrong is named with file, entry and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbox.schemas.errors import ConfigError
from rollbox.tools.base import BaseTool
from rollbox.tools.config_values import interpolated
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
        ("tools: [{config: {}}]", "tools.0: class_name must be 'package.module.Name', not ''"),
        ("tools: [{class_name: nodots}]", "tools.0: class_name must be 'package.module.Name', not 'nodots'"),
        ("tools: [{class_name: not_there.Tool}]", "'not_there'; for a module of your own put its folder on PYTHONPATH"),
        (
            "tools: [{class_name: rollbox.tools.calculator.CalculatorTol}]",
            "has no class or function 'CalculatorTol'; did you mean 'CalculatorTool'?",
        ),
        ("tools: [{class_name: pathlib.Path}]", "'pathlib.Path' is not a subclass of rollbox.tools.base.BaseTool"),
        (
            f"tools: [{{class_name: {CALCULATOR}, config: {{precison: 3}}}}]",
            "precison: Extra inputs are not permitted (got 3); did you mean 'precision'?",
        ),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{precision: few}}}}]", "config: precision: Input should be"),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{type: mcp}}}}]", "leave it out for an MCP server"),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{type: natve}}}}]", "not 'natve'; did you mean 'native'?"),
        ("tools: [{config: {type: mcp}}]", "tools.0: config: (whole input): give command (a program) or url"),
        ("tools: [{config: {type: mcp, command: no-such-program}}]", "there is no program 'no-such-program'"),
        (
            "tools: [{config: {type: mcp, comand: x}}]",
            "comand: Extra inputs are not permitted (got 'x'); did you mean 'command",
        ),
        ("tools: [{config: {type: mcp, command: 'false'}}]", "tools.0: config: MCP server false: cannot connect"),
        (
            "tools: [{class_name: rollbox.tools.calculater.CalculatorTool}]",
            "No module named 'rollbox.tools.calculater'; did you mean 'calculator'?",
        ),
        ("tools: [{class_name: os.path.join, config: {type: function}}]", "parameter 'a' has no type hint"),
        ("tools: [{class_name: os.sep, config: {type: function}}]", "'os.sep' is no function"),
        (
            "tools: [{class_name: textwrap.dedent, config: {type: function, k: 3}}]",
            "a function takes type and max_concurrency",
        ),
        (
            f"tools: [{{class_name: {CALCULATOR}, config: {{precision: '${{ROLLBOX_UNSET}}'}}}}]",
            "tools.0.config.precision: environment variable 'ROLLBOX_UNSET' is not set",
        ),
        (f"tools: [{{class_name: {CALCULATOR}, config: {{precision: '${{a b}}'}}}}]", "'${a b}' is no variable"),
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


def write(folder: Path, text: str) -> Path:
    file = folder / "tools.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${DIGITS}", 12),
        ("${oc.env:DIGITS}", 12),
        ("${UNSET_DIGITS:-7}", 7),
        ("${oc.env:UNSET_DIGITS, 7}", 7),
        ("1${ONE}", 11),
    ],
)
def test_environment_variables(written: str, read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGITS", "12")
    monkeypatch.setenv("ONE", "1")
    file = write(tmp_path, f"tools: [{{class_name: {CALCULATOR}, config: {{precision: '{written}'}}}}]")
    assert load_tools(file)["calculator"].config.model_dump()["precision"] == read


def test_a_dollar_can_be_written() -> None:
    assert interpolated({"a": ["$${X} $1 $", 5, None]}, "x") == {"a": ["${X} $1 $", 5, None]}


def test_a_relative_path_counts_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    entry = "class_name: rollbox.tools.search.SearchTool, config: {corpus: data/mine.jsonl}"
    tool = load_tools(write(tmp_path, f"tools: [{{{entry}}}]"))["search"]
    assert tool.config.model_dump()["corpus"] == str(tmp_path / "data" / "mine.jsonl")


@pytest.mark.parametrize("config", ["", ", config: {type: function}", ", config: "])
def test_functions_load_with_and_without_a_type(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_functions.py").write_text(
        "from rollbox.tools.function_tool import tool\n"
        "@tool(name='twice')\n"
        "def double(x: int) -> int:\n"
        "    '''Double a number.'''\n"
        "    return 2 * x\n"
        "def plain(x: int) -> int:\n"
        "    '''A plain function.'''\n"
        "    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = f"tools: [{{class_name: my_functions.double{config}}}, {{class_name: my_functions.plain{config}}}]"
    assert list(load_tools(write(tmp_path, text))) == ["twice", "plain"]
    limited = "tools: [{class_name: my_functions.double, config: {max_concurrency: 2}}]"
    slots = load_tools(write(tmp_path, limited))["twice"].slots
    assert slots is not None
    assert slots.count == 2


def test_a_module_that_breaks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_broken_tools.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"tools\.0\.class_name: cannot import 'my_broken_tools': ZeroDivisionError"):
        load_tools(write(tmp_path, "tools: [{class_name: my_broken_tools.Tool}]"))
