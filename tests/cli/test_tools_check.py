"""`rollbox tools check` on real files: what it prints, and its exit codes."""

from __future__ import annotations

from pathlib import Path

from .test_commands import rollbox


def test_every_shipped_tool_answers() -> None:
    result = rollbox("tools", "check", "all")
    assert result.returncode == 0, result.stderr
    for line in (
        "calculator: ok",
        "python: ok",
        "bash: ok",
        "search: ok",
        "answered    391",
        "answered    42",
        '"name": "python"',
    ):
        assert line in result.stdout
    assert "ms" in result.stdout


def test_a_tool_that_does_not_answer_is_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(
        "tools:\n"
        "  - {class_name: rollbox.tools.calculator.CalculatorTool}\n"
        "  - {class_name: rollbox.tools.python_executor.PythonExecutorTool, config: {sandbox_url: 'http://127.0.0.1:9'}}\n"
    )
    result = rollbox("tools", "check", str(file), "--timeout-s", "2", "--call", 'calculator={"expression": "1/0"}')
    assert result.returncode == 1
    assert "calculator: ok" in result.stdout
    assert "division by zero" in result.stdout
    assert "python: FAILED" in result.stdout
    assert "cannot be reached" in result.stdout


def test_schemas_alone() -> None:
    result = rollbox("tools", "check", "calculator", "--no-calls")
    assert result.returncode == 0
    assert '"expression"' in result.stdout
    assert "ok" not in result.stdout
