"""ContainerServer: a sandbox server in a Docker container of its own, as compose.yaml hardens it.

The container cannot outlive this process: its server holds the container's stdin as its lifeline, which the engine
closes when our connection to it goes; and it is removed when it ends. Should the engine itself have been away at that
moment, the label that names this process lets the next start on this machine remove what was left.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

from ..schemas.errors import ConfigError, SandboxError
from ..serving.bearer import TOKEN_VARIABLE
from .container_options import OWNER_LABEL, container_options, service

_START_S = 60.0
_STOP_S = 40.0
_POLL_S = 0.05
_LOG_BYTES = 4000
_LOG_S = 5.0
_CONFLICT = 409
_PORT = "8080/tcp"
_LIFELINE_FD = 0


class ContainerServer:
    """One container on a free port of 127.0.0.1, with a token that only its owner knows."""

    def __init__(self, image: str | None, settings: dict[str, Any]) -> None:
        """
        Args:
            image: None is the one that compose.yaml names, built by `docker compose build sandbox`.
            settings: `SandboxSettings` by name, without host, port, the token and the descriptors.

        Raises:
            ConfigError: the package `docker` is not installed.
        """
        try:
            import docker
        except ImportError as error:
            raise ConfigError("a sandbox in a container needs: pip install 'rollbox[docker]'") from error
        self._docker = docker
        self._image = image or str(service()["image"])
        self._settings = settings
        self.token = secrets.token_urlsafe(32)
        self._client: Any = None
        self._container = ""
        self._attached: Any = None
        self._reader: threading.Thread | None = None
        self._said = b""

    @property
    def pid(self) -> int:
        """Of the server, as this machine sees it. Raises: SandboxError: it has not been started."""
        if not self._container:
            raise SandboxError("the sandbox container is not running: use `async with`")
        return int(self._client.inspect_container(self._container)["State"]["Pid"])

    async def start(self) -> str:
        """Start it, wait until it serves, and return its URL.

        Raises:
            ConfigError: there is no Docker engine, or no such image.
            SandboxError: the server did not start; the text ends with what it wrote.
        """
        try:
            async with asyncio.timeout(_START_S):
                url = await asyncio.to_thread(self._run)
                await self._healthy(url)
        except TimeoutError:
            text = await asyncio.to_thread(self._log)
            await self.stop()
            raise SandboxError(f"the sandbox container was not ready after {_START_S:.0f} s: {text}") from None
        except BaseException:
            await self.stop()
            raise
        return url

    def _run(self) -> str:
        errors = self._docker.errors
        try:
            self._client = self._docker.APIClient(**self._docker.utils.kwargs_from_env(), version="auto")
            _reap_orphans(self._client)
            options = container_options(self._client, self._image, self._command(), {TOKEN_VARIABLE: self.token})
            self._container = self._client.create_container(**options, labels={OWNER_LABEL: owner()})["Id"]
            # Attached before the start, so that there is no moment without a lifeline.
            attached = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self._attached = self._client.attach_socket(self._container, params=attached)
            # A container that has ended is gone, and its log with it.
            self._reader = threading.Thread(target=self._read, args=(self._attached,), daemon=True)
            self._reader.start()
            self._client.start(self._container)
            ports = self._client.inspect_container(self._container)["NetworkSettings"]["Ports"]
        except errors.ImageNotFound:
            raise ConfigError(
                f"sandbox container: there is no image {self._image!r}; build it in Rollbox's folder with: "
                "docker compose build sandbox"
            ) from None
        except errors.APIError as error:
            raise SandboxError(f"the sandbox container could not be started: {error.explanation or error}") from error
        except (errors.DockerException, OSError) as error:
            raise ConfigError(f"sandbox container: no Docker engine can be reached ({error})") from error
        if not ports.get(_PORT):
            raise SandboxError(f"the sandbox container ended as it started: {self._log()}")
        return f"http://127.0.0.1:{ports[_PORT][0]['HostPort']}"

    def _command(self) -> list[str]:
        command = [f"--lifeline-fd={_LIFELINE_FD}"]
        return command + [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]

    async def _healthy(self, url: str) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                with suppress(aiohttp.ClientError, OSError):
                    async with http.get(f"{url}/v1/health") as response:
                        if response.status == 200:
                            return
                if not await asyncio.to_thread(self._is_running):
                    raise SandboxError(
                        f"the sandbox container ended as it started: {await asyncio.to_thread(self._log)}"
                    )
                await asyncio.sleep(_POLL_S)

    def _is_running(self) -> bool:
        try:
            return bool(self._client.inspect_container(self._container)["State"]["Running"])
        except self._docker.errors.NotFound:
            return False

    def _read(self, attached: Any) -> None:
        from docker.utils.socket import frames_iter

        with suppress(OSError, ValueError, self._docker.errors.DockerException):
            for _, part in frames_iter(attached, tty=False):
                self._said = (self._said + part)[-_LOG_BYTES:]

    def _log(self) -> str:
        if self._reader is not None:
            self._reader.join(_LOG_S)
        return self._said.decode(errors="backslashreplace").strip()

    async def stop(self) -> None:
        """End it and remove it. Safe to call again."""
        await asyncio.shield(asyncio.to_thread(self._remove))

    def _remove(self) -> None:
        container, self._container = self._container, ""
        attached, self._attached = self._attached, None
        reader, self._reader = self._reader, None
        client, self._client = self._client, None
        try:
            if container:
                _remove(client, container)
        finally:
            if reader is not None:
                reader.join(_LOG_S)
            if attached is not None:
                attached._response.close()  # which the SDK hangs on the socket, and which closes that
            if client is not None:
                client.close()


def owner() -> str:
    """This process, in words that no other process of any machine shares."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.getpid()} {_start_of(os.getpid())}"


def _start_of(pid: int) -> str:
    """When a process started, by the kernel's clock; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _reap_orphans(client: Any) -> None:
    """Remove containers of processes of this machine that are gone."""
    boot = owner().split()[0]
    for container in client.containers(all=True, filters={"label": OWNER_LABEL}):
        their_boot, pid, started = container["Labels"][OWNER_LABEL].split()
        if their_boot == boot and _start_of(int(pid)) != started:
            _remove(client, container["Id"])


def _remove(client: Any, container: str) -> None:
    """Remove a container and wait until it is gone; it may be ending by itself at the same time."""
    from docker.errors import APIError, NotFound

    try:
        client.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
    with suppress(NotFound):
        client.wait(container, condition="removed", timeout=_STOP_S)
