"""The tools YAML files that ship with Rollbox."""

from __future__ import annotations

from pathlib import Path

from ..schemas.errors import ConfigError

FOLDER = Path(__file__).parent


def find_tools(name: str) -> Path:
    """The tools file that `name` means: a path, or the name of a shipped one such as `math`.

    Raises:
        ConfigError: there is none.
    """
    shipped = FOLDER / f"{name}.yaml"
    if Path(name).is_file():
        return Path(name)
    if "/" not in name and shipped.is_file():
        return shipped
    names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    raise ConfigError(f"tools: {name!r} is not a file, nor one of the shipped ones: {names}")
