"""Which verl this is, and whether we can be its plugin."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ..schemas.errors import ConfigError

SUPPORTED = ("0.9.1",)
"""Releases that the plugin was tested with. Tools and their YAML run under older ones too (see docs/verl.md)."""


def installed_version() -> str | None:
    """The version of the installed verl; None without one."""
    try:
        return version("verl")
    except PackageNotFoundError:
        return None


def check_version(found: str | None = None) -> str:
    """The installed version, when the plugin supports it.

    Args:
        found: judge this version instead of the installed one.

    Raises:
        ConfigError: verl is missing, or is another release.
    """
    found = found or installed_version()
    if found is None:
        raise ConfigError(f"verl is not installed; install it with: pip install verl=={SUPPORTED[-1]}")
    if found not in SUPPORTED:
        raise ConfigError(
            f"verl {found} is not supported by rollbox.training.plugin (supported: {', '.join(SUPPORTED)}); "
            "install one of these, or leave the plugin out and use verl's own tool_agent loop"
        )
    return found
