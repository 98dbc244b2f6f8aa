"""`rollbox tools check`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ..schemas.errors import ConfigError
from ..serving.interrupt import run_to_its_end

tools = typer.Typer(name="tools", help="Look at the tools of a YAML file.", no_args_is_help=True)
_SHOWN_CHARS = 200


@tools.callback()
def _group() -> None:
    """Makes `check` a command of a group, though it is the only one."""


@tools.command()
def check(
    file: Annotated[str, typer.Argument(help="Tools YAML, or the name of a shipped one, such as math.")],
    arguments: Annotated[
        list[str] | None, typer.Option("--call", help='TOOL={"json": "arguments"} to call with.')
    ] = None,
    call: Annotated[bool, typer.Option("--call-tools/--no-calls", help="Call each tool.")] = True,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Seconds that one call may take.")] = 60.0,
) -> None:
    """Print the schemas as the model sees them, call each tool twice, and say how long it took.

    Exit code 0: every tool answered. 1: one did not. 2: the file or a setting is wrong.
    """
    from ..tools.check import check_tools
    from ..tools.registry import load_tools
    from ..tools_config import find_tools

    loaded = load_tools(find_tools(file))
    given = _given(arguments or [], list(loaded))
    for tool in loaded.values():
        typer.echo(json.dumps(tool.tool_schema.as_template_dict(), ensure_ascii=False, indent=2))
    if not call:
        return
    failed = 0
    for checked in run_to_its_end(check_tools(loaded, given, timeout_s=timeout_s)):
        failed += not checked.ok
        verdict = "ok" if checked.ok else "FAILED"
        typer.echo(f"{checked.name}: {verdict}, first call {checked.first_ms:.1f} ms, then {checked.again_ms:.1f} ms")
        typer.echo(f"  called with {_short(json.dumps(checked.arguments, ensure_ascii=False))}")
        answer = checked.text if checked.ok else f"{checked.error_kind}: {checked.error}"
        typer.echo(f"  answered    {_short(answer)}")
    if failed:
        raise typer.Exit(1)


def _given(options: list[str], names: list[str]) -> dict[str, dict[str, Any]]:
    """
    Raises:
        ConfigError: an option is not TOOL=JSON, or names no tool of the file.
    """
    from ..schemas.validation import nearest

    found: dict[str, dict[str, Any]] = {}
    for option in options:
        name, separator, text = option.partition("=")
        if name not in names:
            raise ConfigError(
                f"--call: there is no tool {name!r}{nearest(name, names)} The file has: {', '.join(names)}"
            )
        try:
            value = json.loads(text) if separator else None
        except ValueError as error:
            raise ConfigError(f"--call {name}: not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ConfigError(f"--call {name}: must be {name}={{...}}, a JSON object")
        found[name] = value
    return found


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "…"
