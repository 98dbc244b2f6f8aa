"""The repository root is the package: each folder is listed where the installer, and where the type checkers, look."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = sorted(
    path.parent for path in ROOT.glob("[a-z]*/**/__init__.py") if path.relative_to(ROOT).parts[0] != "tests"
)


def test_every_folder_is_installed() -> None:
    found = {"rollbox", *(".".join(("rollbox", *folder.relative_to(ROOT).parts)) for folder in FOLDERS)}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_every_folder_is_type_checked() -> None:
    links = {path.name: path.resolve() for path in (ROOT / ".links" / "rollbox").iterdir()}
    expected = {folder.name: folder for folder in FOLDERS if folder.parent == ROOT}
    expected |= {name: ROOT / name for name in ("__init__.py", "py.typed")}
    assert links == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "tools_config/*.yaml",
        "recipes/*.yaml",
        "recipes/*/*.yaml",
        "retrieval/corpus/*",
        "demo/data/*",
        "demo/templates/*",
        "viewer/templates/*",
        "viewer/static/*",
    ],
)
def test_data_files_are_installed(pattern: str) -> None:
    assert list(ROOT.glob(pattern))
    assert pattern in PROJECT["tool"]["setuptools"]["package-data"]["rollbox"]


def test_nothing_else_lies_at_the_root_of_the_package() -> None:
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


def test_every_folder_is_in_the_image() -> None:
    """Where the Dockerfile installs the package, what is not excepted from .dockerignore is missing."""
    excepted = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert excepted >= {folder.relative_to(ROOT).parts[0] for folder in FOLDERS}
    assert excepted >= {"__init__.py", "py.typed", "pyproject.toml", "constraints.txt", "compose.yaml"}
