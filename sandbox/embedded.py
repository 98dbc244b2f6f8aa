"""EmbeddedServer: a sandbox server as a child process that cannot outlive its parent."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from asyncio.subprocess import Process
from contextlib import ExitStack, suppress
from typing import Any

from ..schemas.errors import ConfigError, SandboxError
from .capture import Collected, attach

_START_S = 60.0
_STOP_S = 10.0
_NEEDS = ("fastapi", "httptools", "prometheus_client", "uvicorn", "uvloop")


def require_server() -> None:
    """
    Raises:
        ConfigError: what a server is made of is not installed, as where a client was enough so far.
    """
    for name in _NEEDS:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"the embedded sandbox needs {name}: pip install 'rollbox[server]'")


class EmbeddedServer:
    """One server on a free port of 127.0.0.1.

    The server holds the read end of a pipe of ours, and ends when the pipe closes: also when this process is killed.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are `SandboxSettings` by name, without host, port and the descriptors."""
        self._settings = settings
        self._process: Process | None = None
        self._lifeline = -1

    @property
    def pid(self) -> int:
        """Raises: SandboxError: it has not been started."""
        if self._process is None:
            raise SandboxError("the embedded sandbox server is not running: use `async with`")
        return self._process.pid

    async def start(self) -> str:
        """Start it and return its URL.

        Raises:
            SandboxError: it did not start; the text is what it wrote to stderr.
        """
        ready = Collected()
        with ExitStack() as ours_until_started:
            lifeline, self._lifeline = os.pipe()
            ready_read, ready_write = os.pipe()
            for fd in (lifeline, ready_write):
                ours_until_started.callback(os.close, fd)
            transport = await attach(ready, ready_read)
            self._process = await asyncio.create_subprocess_exec(
                *self._command(ready_write, lifeline),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=None,
                pass_fds=(ready_write, lifeline),
                start_new_session=True,  # Ctrl-C is ours to handle; we close the lifeline
            )
        try:
            async with asyncio.timeout(_START_S):
                port = (await ready.data()).decode().strip()
        except TimeoutError:
            await self.stop()
            raise SandboxError(f"the embedded sandbox server was not ready after {_START_S:.0f} s") from None
        except BaseException:
            await self.stop()
            raise
        finally:
            transport.close()
        if not port:
            code = await self._process.wait()
            await self.stop()
            raise SandboxError(f"the embedded sandbox server did not start (exit code {code}); see its stderr")
        return f"http://127.0.0.1:{port}"

    def _command(self, ready: int, lifeline: int) -> list[str]:
        options = {**self._settings, "host": "127.0.0.1", "port": 0, "ready-fd": ready, "lifeline-fd": lifeline}
        command = [sys.executable, "-m", "rollbox.sandbox.serve"]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return command

    async def stop(self) -> None:
        """Let go of it and reap. Safe to call again."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
