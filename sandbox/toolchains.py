"""Toolchains: which languages have their programs where the jail can see them, and what commands they make."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.run import RunLimits, RunRequest
from .interpreter import Interpreter
from .jail import policy
from .languages import LANGUAGES, PYTHON, Language

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_VERSION_S = 20.0
_PYTHON_VERSION = ".".join(map(str, sys.version_info[:3]))


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A language that is present. `paths`: each of its programs, by name."""

    language: Language
    paths: dict[str, str]

    def command(self, template: Iterable[str], names: dict[str, str]) -> tuple[str, ...]:
        """`template` with its placeholders filled from `names` and the programs' paths."""
        values = {**self.paths, **names}
        return tuple(part.format_map(values) if "{" in part else part for part in template)


def names(language: Language, code: str, limits: RunLimits) -> dict[str, str]:
    """What placeholders of a language's commands stand for, for one program."""
    entry = next((found[1] for pattern in language.entries if (found := re.search(pattern, code))), "Main")
    package = re.search(language.package, code)
    return {
        "source": language.source.format(entry=entry),
        "artifact": language.compile.artifact if language.compile else "",
        "qualified": f"{package[1]}.{entry}" if package else entry,
        "python": sys.executable,
        "heap_mb": str(limits.memory_mb * 3 // 4 - 32),
    }


class Toolchains:
    """The languages of one server, by every name that a request may use."""

    def __init__(self, languages: Iterable[Language] = LANGUAGES, visible: tuple[str, ...] | None = None) -> None:
        """
        Args:
            visible: folders that the jail shows.
        """
        self._visible = Interpreter.current().binds if visible is None else visible
        self._by_name: dict[str, Toolchain] = {}
        self.absent: dict[str, str] = {}
        """Name of a language that is not available -> why."""
        for language in languages:
            self._add(language)
        self._versions: dict[str, str] | None = None

    def _add(self, language: Language) -> None:
        paths = {program: self._find(program, language.folders) for program in language.programs}
        missing = " and ".join(program for program, path in paths.items() if path is None)
        if missing:
            where = ", ".join((*policy.BASE_ENV["PATH"].split(":"), *language.folders))
            self.absent |= dict.fromkeys((language.name, *language.aliases), f"{missing} is not installed in {where}")
            return
        toolchain = Toolchain(language, {program: path for program, path in paths.items() if path is not None})
        self._by_name |= dict.fromkeys((language.name, *language.aliases), toolchain)

    def _find(self, program: str, folders: tuple[str, ...]) -> str | None:
        more = [found for pattern in folders for found in sorted(glob.glob(pattern), reverse=True)]
        for folder in (*policy.BASE_ENV["PATH"].split(":"), *more):
            path = shutil.which(program, path=folder)
            if path is not None and self._is_visible(path):
                return path
        return None

    def _is_visible(self, path: str) -> bool:
        """Whether the program at the end of all links lies in a folder that the jail shows."""
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in self._visible)

    @property
    def languages(self) -> tuple[str, ...]:
        """All names, aliases too, of the languages that are available."""
        return tuple(self._by_name)

    @property
    def foreign(self) -> tuple[Toolchain, ...]:
        """The toolchains of all available languages but Python."""
        unique = {each.language.name: each for each in self._by_name.values()}
        return tuple(toolchain for name, toolchain in unique.items() if name != PYTHON)

    def of(self, language: str, field: str = "language") -> Toolchain:
        """
        Raises:
            ToolError: (kind `arguments`) there is no such language here; the text says why, and which there are.
        """
        found = self._by_name.get(language)
        if found is not None:
            return found
        present = ", ".join(dict.fromkeys(each.language.name for each in self._by_name.values()))
        why = f" ({self.absent[language]})" if language in self.absent else ""
        text = f"{field}: {language!r} is not available{why}; available are {present}"
        raise ToolError(text, ErrorKind.ARGUMENTS)

    def check(self, request: RunRequest) -> None:
        """
        Raises:
            ToolError: (kind `arguments`) the language is absent, or cannot do or have what the request asks for.
        """
        language = self.of(request.language).language
        if language.name == PYTHON:
            return
        for field in ("echo_last_expression", "figures"):
            if getattr(request, field):
                raise ToolError(f"{field}: only programs in python can do this", ErrorKind.ARGUMENTS)
        for field in ("processes", "memory_mb"):
            least, given = getattr(language.needs, field), getattr(request.limits, field)
            if given < least:
                text = f"limits.{field}: programs in {language.name} need at least {least} (got {given})"
                raise ToolError(text, ErrorKind.ARGUMENTS)

    async def versions(self) -> dict[str, str]:
        """The version of each present language, by its first name. Asked for once, of the programs themselves."""
        if self._versions is None:
            present = {each.language.name: each for each in self._by_name.values()}
            found = await asyncio.gather(*(_version(toolchain) for toolchain in present.values()))
            self._versions = dict(zip(present, found, strict=True))
        return self._versions


async def _version(toolchain: Toolchain) -> str:
    if not toolchain.language.version:
        return _PYTHON_VERSION
    command = toolchain.command(toolchain.language.version, {})
    env = {**policy.BASE_ENV, "HOME": "/", **toolchain.language.env}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
        )
    except OSError:
        return "unknown"
    try:
        async with asyncio.timeout(_VERSION_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return "unknown"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    found = _VERSION.search(output.decode(errors="replace"))
    return found[0] if found else "unknown"
