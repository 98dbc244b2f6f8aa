"""What a program sees of the jail from inside. What it may try is in `adversarial`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rollbox.sandbox.self_check import private_folders

ERRNO_OF = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
def errno_of(name, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*arguments)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
"""


async def test_status_shows_no_privilege(seen: Any) -> None:
    status = await seen("""
import json
print(json.dumps(dict(line.split(":", 1) for line in open("/proc/self/status"))))
""")
    assert status["Seccomp"].strip() == "2"
    assert status["NoNewPrivs"].strip() == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert set(status["Uid"].split()) == {"1000"}
    assert status["Groups"].strip() == ""


async def test_host_accounts_are_not_visible(seen: Any) -> None:
    users = await seen("import json; print(json.dumps(open('/etc/passwd').read().splitlines()))")
    assert [line.split(":")[0] for line in users] == ["sandbox"]
    denied = await seen("""
import json, os
def attempt(path):
    try:
        return open(path).read()
    except OSError as error:
        return type(error).__name__
print(json.dumps([attempt(path) for path in ("/etc/shadow", "/etc/hostname", "/root/.bashrc", "/home", "/var/log")]))
""")
    assert set(denied) == {"FileNotFoundError"}


async def test_root_shows_only_what_the_policy_names(seen: Any, tmp_path: Path) -> None:
    (tmp_path / "host-file").write_text("host")
    found = await seen(f"import json, os; print(json.dumps([os.path.exists({str(tmp_path)!r}), os.listdir('/tmp')]))")
    assert found == [False, private_folders()["/tmp"]]


async def test_only_own_processes_are_visible(seen: Any) -> None:
    pids = await seen("import json, os; print(json.dumps([p for p in os.listdir('/proc') if p.isdigit()]))")
    assert len(pids) == 1
    inside = await seen(f"import json, os; print(json.dumps(os.path.exists('/proc/{os.getpid()}/cmdline')))")
    assert inside is False


async def test_no_secret_of_the_server_in_the_environment(seen: Any) -> None:
    environment = await seen("import json, os; print(json.dumps(dict(os.environ)))")
    assert "ROLLBOX_TEST_SECRET" not in environment
    assert environment["HOME"] == "/workspace"


async def test_clone3_is_absent_so_that_libraries_fall_back(seen: Any) -> None:
    assert await seen(ERRNO_OF + "print(json.dumps(errno_of('syscall', 435, 0, 0)))") == "ENOSYS"
    threads = "import json, threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join()"
    assert await seen(threads) == 1


async def test_loopback_is_the_only_interface_and_works(seen: Any) -> None:
    interfaces, echoed, outside = await seen("""
import json, socket
names = [name for _, name in socket.if_nameindex()]
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
client.sendall(b"hi")
echoed = listener.accept()[0].recv(2).decode()
try:
    socket.create_connection(("192.0.2.1", 80), 1)
    outside = "connected"
except OSError as error:
    outside = error.strerror
print(json.dumps([names, echoed, outside]))
""")
    assert interfaces == ["lo"]
    assert echoed == "hi"
    assert outside == "Network is unreachable"


async def test_no_traceback_or_host_path_of_the_server_in_the_jail(seen: Any) -> None:
    readable = await seen("""
import json, os
print(json.dumps([os.environ.get("PWD"), os.getcwd(), __file__]))
""")
    assert readable == [None, "/workspace", "/workspace/main.py"]
