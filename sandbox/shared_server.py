"""SharedServer: one embedded server per machine, user and settings, started by its first user, ended with its last."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from .. import __version__
from ..schemas.errors import ConfigError, SandboxError
from ..serving.bearer import environment_token
from .capture import Collected, attach
from .users import OTHERS_STAY

_START_S = 60.0
_STOP_S = 10.0
_GREETING_S = 5.0
_LOCK_RETRY_S = 0.02
_LOG_BYTES = 4000
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 108


class SharedServer:
    """A user's hold on the server. Processes that ask for the same settings share it; it lives while one holds it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are `SandboxSettings` by name, without host, port and the descriptors."""
        self._settings = settings
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pid = 0

    @property
    def pid(self) -> int:
        """Raises: SandboxError: it has not been started."""
        if self._writer is None:
            raise SandboxError("the embedded sandbox server is not running: use `async with`")
        return self._pid

    async def start(self) -> str:
        """Find the server or start it, and return its URL.

        Raises:
            ConfigError: the folder for the lock is not safe to use.
            SandboxError: the server did not start; the text is what it wrote to stderr.
        """
        place = _place(self._settings)
        try:
            async with asyncio.timeout(_START_S):
                # Two that start at a time must not start two servers.
                async with _locked(f"{place}.lock"):
                    url = await self._join(f"{place}.socket")
                    if url is None:
                        await self._launch(place)
                        url = await self._join(f"{place}.socket")
        except TimeoutError:
            raise SandboxError(f"the embedded sandbox server was not ready after {_START_S:.0f} s") from None
        if url is None:
            raise SandboxError(f"the embedded sandbox server ended as it started: {_end_of(f'{place}.log')}")
        return url

    async def _join(self, path: str) -> str | None:
        """Become a user of the server at `path`; None if there is none, or one that is about to end."""
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError:
            return None
        try:
            async with asyncio.timeout(_GREETING_S):
                greeting = json.loads(await reader.readline() or b"null")
        except (OSError, ValueError):
            greeting = None
        except BaseException:
            writer.close()
            raise
        if greeting is None:
            writer.close()
            return None
        self._reader, self._writer, self._pid = reader, writer, greeting["pid"]
        return str(greeting["url"])

    async def _launch(self, place: str) -> None:
        """Start a server that is nobody's child, and wait until it serves."""
        ready = Collected()
        ready_read, ready_write = os.pipe()
        transport = await attach(ready, ready_read)
        # Not our stderr: who waits for its end must not wait for a server that others use longer.
        log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(f"{place}.socket", ready_write),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                pass_fds=(ready_write,),
                start_new_session=True,
            )
        finally:
            os.close(log)
            os.close(ready_write)
        try:
            code = await process.wait()  # what goes on is its child
            port = await ready.data()
        finally:
            transport.close()
        if not port:
            reason = _end_of(f"{place}.log") or f"exit code {code}"
            raise SandboxError(f"the embedded sandbox server did not start: {reason}")

    def _command(self, socket_path: str, ready: int) -> list[str]:
        options = {**self._settings, "host": "127.0.0.1", "port": 0, "ready-fd": ready, "users-socket": socket_path}
        command = [sys.executable, "-m", "rollbox.sandbox.serve"]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return command

    async def stop(self) -> None:
        """Let go of it, and if nobody else holds it wait until it has ended. Safe to call again."""
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if writer is None or reader is None:
            return
        try:
            with suppress(OSError):  # also TimeoutError
                async with asyncio.timeout(_STOP_S):
                    writer.write_eof()
                    if await reader.read() != OTHERS_STAY:
                        await _end_of_process(self._pid)
        finally:
            writer.close()


async def _end_of_process(pid: int) -> None:
    fd = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _place(settings: dict[str, Any]) -> str:
    """A path, without suffix, for the files of the server with these settings of this installation."""
    token = hashlib.sha256((environment_token() or "").encode()).hexdigest()  # the server has it from whoever starts it
    identity = json.dumps(
        [__version__, str(Path(__file__).parent), sys.executable, sys.prefix, sorted(settings.items()), token],
        default=str,
    )
    place = f"{_folder()}/{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if len(f"{place}.socket") > _LONGEST_SOCKET_PATH:
        raise ConfigError(f"embedded sandbox: {place} is too long for a socket; set TMPDIR to a shorter path")
    return place


def _folder() -> str:
    """A folder for this user alone: whoever could write to it could pose as the server.

    Raises:
        ConfigError: something else is in its place.
    """
    folder = f"{tempfile.gettempdir()}/rollbox-{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    state = os.lstat(folder)
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise ConfigError(f"embedded sandbox: {folder} must be a folder of this user, closed to others (mode 700)")
    return folder


@asynccontextmanager
async def _locked(path: str) -> AsyncIterator[None]:
    # Not closed by an `except` alone: the kernel lets go of the lock of a process that is killed.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_RETRY_S)
        yield
    finally:
        os.close(fd)


def _end_of(path: str) -> str:
    try:
        return Path(path).read_bytes()[-_LOG_BYTES:].decode(errors="backslashreplace").strip()
    except OSError:
        return ""
