"""Attacks from inside the jail: what a program must not see, reach or change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rollbox.sandbox.self_check import private_folders

from .conftest import RunCode
from .server_process import ServerProcess

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


async def test_init_is_closed(seen: Any) -> None:
    answers = await seen("""
import json, os, signal
answers = []
for name in ("environ", "mem", "maps", "fd", "root", "cmdline"):
    try:
        os.listdir("/proc/1/" + name) if name in ("fd", "root") else open("/proc/1/" + name, "rb").read(1)
        answers.append("read " + name)
    except OSError:
        pass
print(json.dumps(answers))
""")
    assert answers == []


async def test_no_secret_of_the_server_in_the_environment(seen: Any) -> None:
    environment = await seen("import json, os; print(json.dumps(dict(os.environ)))")
    assert "ROLLBOX_TEST_SECRET" not in environment
    assert environment["HOME"] == "/workspace"


async def test_runs_share_no_files(run: RunCode, seen: Any) -> None:
    mark = (
        "import os\nfor d in ('/workspace', '/tmp', '/dev/shm'): open(d + '/left-behind', 'w').write('x')\nprint('ok')"
    )
    assert (await run(mark)).stdout == "ok\n"
    look = "import json, os; print(json.dumps([os.listdir(d) for d in ('/workspace', '/tmp', '/dev/shm')]))"
    assert await seen(look) == [["main.py"], private_folders()["/tmp"], []]


@pytest.mark.parametrize("path", ["/usr/x", "/x", "/etc/x", "/dev/x", "/usr/bin/python3", "/proc/self/oom_score_adj"])
async def test_writing_outside_the_private_folders_is_refused(run: RunCode, path: str) -> None:
    result = await run(f"open({path!r}, 'w')")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(("OSError: [Errno 30]", "PermissionError"))


async def test_the_interpreter_is_read_only(run: RunCode) -> None:
    result = await run("import json; open(json.__file__, 'a')")
    assert result.stderr.splitlines()[-1].startswith(("OSError: [Errno 30]", "PermissionError"))


async def test_namespace_and_mount_calls_are_refused(seen: Any) -> None:
    answers = await seen(
        ERRNO_OF
        + """
print(json.dumps({
    "unshare": errno_of("unshare", 0x10000000),
    "mount": errno_of("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "umount2": errno_of("umount2", b"/workspace", 2),
    "remount": errno_of("mount", b"none", b"/usr", None, 32 | 4096, None),
    "chroot": errno_of("chroot", b"/tmp"),
    "setns": errno_of("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "ptrace": errno_of("ptrace", 16, 1, 0, 0),
    "process_vm_readv": errno_of("process_vm_readv", 1, None, 0, None, 0, 0),
    "memfd_create": errno_of("memfd_create", b"x", 0),
    "personality": errno_of("personality", 0x0040000),
    "keyctl": errno_of("syscall", 250, 0, 0),
    "io_uring_setup": errno_of("syscall", 425, 1, 0),
    "userfaultfd": errno_of("syscall", 323, 0),
    "bpf": errno_of("syscall", 321, 0, 0, 0),
    "open_tree": errno_of("syscall", 428, -100, b"/", 1),
    "clone(NEWUSER)": errno_of("syscall", 56, 0x10000000 | 17, 0, 0, 0, 0),
}))
"""
    )
    assert answers == dict.fromkeys(answers, "EPERM")


async def test_clone3_is_absent_so_that_libraries_fall_back(seen: Any) -> None:
    assert await seen(ERRNO_OF + "print(json.dumps(errno_of('syscall', 435, 0, 0)))") == "ENOSYS"
    threads = "import json, threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join()"
    assert await seen(threads) == 1


async def test_foreign_system_call_tables_are_closed(run: RunCode) -> None:
    # mmap a page, and call getpid by the i386 entry: its numbers would dodge a filter made for x86-64.
    result = await run("""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
""")
    assert result.stdout == ""
    assert result.signal is not None


async def test_the_servers_port_is_out_of_reach(seen: Any, server: ServerProcess) -> None:
    answer = await seen(f"""
import json, socket
try:
    socket.create_connection(("127.0.0.1", {server.port}), 2)
    print(json.dumps("connected"))
except OSError as error:
    print(json.dumps(type(error).__name__))
""")
    assert answer == "ConnectionRefusedError"


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


@pytest.mark.parametrize(("family", "name"), [(40, "vsock"), (38, "alg"), (17, "packet"), (21, "rds"), (4, "ipx")])
async def test_other_socket_families_are_refused(seen: Any, family: int, name: str) -> None:
    assert await seen(ERRNO_OF + f"print(json.dumps(errno_of('socket', {family}, 1, 0)))") == "EPERM", name


@pytest.mark.parametrize("number", ["KILL", "STOP", "INT", "TERM", "CHLD", "SEGV"])
async def test_signals_do_not_reach_init(run: RunCode, number: str) -> None:
    result = await run(f"import os, signal\nfor _ in range(50): os.kill(1, signal.SIG{number})\nprint('still here')")
    assert (result.status, result.stdout) == ("ok", "still here\n")


async def test_killing_everything_kills_only_oneself(run: RunCode) -> None:
    result = await run("""
import os, signal, subprocess
other = subprocess.Popen(["sleep", "60"])
os.kill(-1, signal.SIGKILL)  # spares the caller, and init
print(other.wait())
""")
    assert (result.status, result.stdout) == ("ok", "-9\n")


async def test_a_forged_report_has_no_effect(run: RunCode) -> None:
    result = await run("""
import os
forged = b'{"outcome": {"reason": "exit", "wait_status": 0, "files": {}}}'
written = 0
for fd in range(3, 51):
    try:
        os.write(fd, forged)
        written += 1
    except OSError:
        pass
print(written)
os._exit(7)
""")
    assert (result.status, result.exit_code, result.stdout) == ("error", 7, "0\n")


async def test_no_traceback_or_host_path_of_the_server_in_the_jail(seen: Any) -> None:
    readable = await seen("""
import json, os
print(json.dumps([os.environ.get("PWD"), os.getcwd(), __file__]))
""")
    assert readable == [None, "/workspace", "/workspace/main.py"]


async def test_stdin_cannot_be_used_as_memory(run: RunCode) -> None:
    result = await run("import os; os.write(os.open('/proc/self/fd/0', os.O_RDWR), b'x')", stdin="text")
    assert result.stderr.splitlines()[-1].startswith("PermissionError")
