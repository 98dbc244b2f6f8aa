"""The network policy: named hosts only, through doors that lead nowhere else."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from rollbox.sandbox.client import Sandbox
from rollbox.sandbox.network import NetworkPolicy
from rollbox.schemas.errors import ConfigError, ErrorKind, ToolError
from rollbox.schemas.run import RunRequest

from .server_process import ServerProcess, serving, until

# An address of the test's machine other than 127.0.0.1 would depend on the machine; all of 127/8 is its loopback.
FETCH = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    connection.sendall(b"hello " * 20_000)
    connection.shutdown(socket.SHUT_WR)
    answer = b""
    while data := connection.recv(65536):
        answer += data
print(len(answer), answer[:12])
"""
TRY = """
import json, socket
def attempt(host, port):
    try:
        socket.create_connection((host, port), timeout=2).close()
        return "connected"
    except OSError as error:
        return type(error).__name__
print(json.dumps([attempt(*target) for target in TARGETS]))
"""


class Echo:
    """A TCP service on the host that sends back what it gets, in capitals."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while data := await reader.read(65_536):
                writer.write(data.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError:
            pass
        finally:
            self.open -= 1
            writer.transport.abort()


@pytest.fixture(scope="module")
def port() -> int:
    """A port that the allowed service will have; the server must know it before."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def allowing(port: int) -> Iterator[ServerProcess]:
    hosts = (
        f"localhost:{port},LOCALHOST:{port},127.0.0.1:{port},10.9.8.7:{port},ip6-localhost:{port},nowhere.invalid:80"
    )
    with serving("--slots", "1", "--allow-hosts", hosts) as process:
        yield process


@asynccontextmanager
async def _service(port: int) -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.answer, "127.0.0.1", port, reuse_address=True)
    try:
        yield echo
    finally:
        server.close()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_a_named_host_is_reached_and_forwards_both_ways(allowing: ServerProcess, port: int, name: str) -> None:
    request = RunRequest(code=FETCH, args=[name, str(port)], allow_hosts=[f"{name}:{port}"])
    async with _service(port) as echo, Sandbox.connect(allowing.url) as sandbox:
        for _ in range(2):  # also in a slot that comes after one with a network
            result = await sandbox.run(request)
            assert (result.status, result.stdout) == ("ok", "120000 b'HELLO HELLO '\n"), result
        assert echo.connections == 2
        await until(lambda: echo.open == 0)


async def test_an_address_of_a_host_can_be_allowed_too(allowing: ServerProcess, port: int) -> None:
    """The door is there, at that address. What is behind it depends on the machine, and is not waited for."""
    code = f"TARGETS = {[('10.9.8.7', port)]!r}\n{TRY}"
    async with Sandbox.connect(allowing.url) as sandbox:
        granted = await sandbox.run(RunRequest(code=code, allow_hosts=[f"10.9.8.7:{port}"]))
        assert json.loads(granted.stdout) == ["connected"]
        assert json.loads((await sandbox.run(RunRequest(code=code))).stdout) != ["connected"]


async def test_without_being_named_in_the_request_there_is_no_network(allowing: ServerProcess, port: int) -> None:
    targets = [("127.0.0.1", port), ("localhost", port), ("10.9.8.7", port), ("127.0.0.1", allowing.port)]
    async with _service(port) as echo, Sandbox.connect(allowing.url) as sandbox:
        granted = RunRequest(code=FETCH, args=["localhost", str(port)], allow_hosts=[f"localhost:{port}"])
        assert (await sandbox.run(granted)).status == "ok"
        result = await sandbox.run(RunRequest(code=f"TARGETS = {targets!r}\n{TRY}"))
        assert "connected" not in json.loads(result.stdout)
        assert echo.connections == 1


async def test_a_door_leads_to_its_own_host_and_port_only(allowing: ServerProcess, port: int) -> None:
    targets = [
        ("localhost", port),
        ("127.0.0.1", allowing.port),
        ("169.254.169.254", 80),
        ("10.9.8.7", port),
        ("example.com", 80),
        ("1.1.1.1", 53),
    ]
    async with _service(port), Sandbox.connect(allowing.url) as sandbox:
        request = RunRequest(code=f"TARGETS = {targets!r}\n{TRY}", allow_hosts=[f"LocalHost:{port}"])
        first, *others = json.loads((await sandbox.run(request)).stdout)
        assert first == "connected"
        assert "connected" not in others


async def test_names_that_are_not_allowed_fail_at_once(allowing: ServerProcess) -> None:
    """Without a name service the lookup fails; it does not wait for one that cannot be reached."""
    code = "import socket\ntry: socket.getaddrinfo('example.com', 80)\nexcept socket.gaierror: print('unknown')"
    async with Sandbox.connect(allowing.url) as sandbox:
        assert (await sandbox.run(RunRequest(code=code))).stdout == "unknown\n"


async def test_a_host_that_cannot_be_reached_closes_the_connection(allowing: ServerProcess) -> None:
    code = (
        "import socket\nc = socket.create_connection(('nowhere.invalid', 80), timeout=20)\n"
        "try: print(c.recv(1))\nexcept ConnectionResetError: print(b'')"
    )
    async with Sandbox.connect(allowing.url) as sandbox:
        result = await sandbox.run(RunRequest(code=code, allow_hosts=["nowhere.invalid:80"]))
        assert result.stdout == "b''\n", result


async def test_connections_end_with_the_run(allowing: ServerProcess, port: int) -> None:
    """Also those of a program that is ended by force while both sides are idle."""
    code = f"import socket\nc = [socket.create_connection(('localhost', {port})) for _ in range(20)]\nwhile True: pass"
    async with _service(port) as echo, Sandbox.connect(allowing.url) as sandbox:
        request = RunRequest(code=code, allow_hosts=[f"localhost:{port}"], limits={"wall_s": 2})
        assert (await sandbox.run(request)).status == "timeout"
        assert echo.connections == 20
        await until(lambda: echo.open == 0)


async def test_files_are_fetched_beside_an_open_door(allowing: ServerProcess, port: int) -> None:
    code = f"import socket\nsocket.create_connection(('localhost', {port})).close()\nopen('made', 'w').write('x')\n7"
    async with _service(port), Sandbox.connect(allowing.url) as sandbox:
        request = RunRequest(
            code=code, allow_hosts=[f"localhost:{port}"], fetch_files=["made"], echo_last_expression=True
        )
        result = await sandbox.run(request)
        assert (result.files, result.last_expression) == ({"made": "eA=="}, "7")


async def test_a_host_that_the_server_does_not_allow_is_refused(allowing: ServerProcess, server: ServerProcess) -> None:
    async with Sandbox.connect(allowing.url) as sandbox:
        with pytest.raises(
            ToolError, match=r"allow_hosts: 'pypi.org:443' is not allowed.*it allows localhost"
        ) as caught:
            await sandbox.run(RunRequest(code="1", allow_hosts=["pypi.org:443"]))
        assert caught.value.kind is ErrorKind.ARGUMENTS
    async with Sandbox.connect(server.url) as sandbox:
        with pytest.raises(ToolError, match="it allows no network"):
            await sandbox.run(RunRequest(code="1", allow_hosts=["localhost:80"]))


async def test_info_says_what_is_allowed(allowing: ServerProcess, port: int) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{allowing.url}/v1/info") as response:
        info: dict[str, Any] = await response.json()
    assert f"localhost:{port}" in info["allowed_hosts"]
    assert "no network" in info["isolation"]


@pytest.mark.parametrize(
    "text", ["pypi.org", "pypi.org:", ":80", "a b:80", "*.org:443", "x:0", "x:70000", "http://x:80", "[::1]:80", "-a:1"]
)
def test_a_malformed_host_stops_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match="allow_hosts") as caught:
        NetworkPolicy(f"ok.org:443,{text}")
    assert repr(text) in str(caught.value)


def test_each_name_has_one_address_inside() -> None:
    policy = NetworkPolicy("a.org:1, b.org:1, A.org:2,10.0.0.5:3")
    assert policy.etc_hosts == "127.0.1.1 a.org\n127.0.1.2 b.org\n"
    assert [(str(host), host.address) for host in policy.granted(["a.org:2", "10.0.0.5:3", "A.ORG:2"])] == [
        ("a.org:2", "127.0.1.1"),
        ("10.0.0.5:3", "10.0.0.5"),
    ]
