"""Attacks on files: the host's, another run's, the interpreter's, and those that are sent back."""

from __future__ import annotations

import base64

from rollbox.schemas.run import RunResult

from .attack import ERRNO_OF, Attack, all_refused, ended, printed

_NONE_OF = (
    *(
        "/etc/shadow",
        "/etc/hostname",
        "/etc/machine-id",
        "/etc/ssh",
        "/root/.bashrc",
        "/root/.ssh",
        "/home",
        "/var",
        "/boot",
        "/opt/rollbox/../../src",
    ),
    *(
        "/sys",
        "/proc/1/environ",
        "/proc/1/cmdline",
        "/proc/1/maps",
        "/proc/1/root/etc/shadow",
        "/proc/kcore",
        "/dev/mem",
    ),
    *(
        "/dev/sda",
        "/dev/vda",
        "/dev/kmsg",
        "/dev/fuse",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/net/tun",
        "/run",
        "/mnt",
        "/srv",
    ),
    *("/var/run/docker.sock", "/.dockerenv", "/run/secrets"),
)


def _nothing_fetched(result: RunResult) -> None:
    assert (result.status, result.stdout, result.files) == ("ok", "set\n", {}), result


def _names_survive(result: RunResult) -> None:
    assert (result.status, result.stdout) == ("ok", "made\n"), result
    assert result.files == {"new\nline": base64.b64encode(b"x").decode()}


ATTACKS = (
    Attack(
        "reading the host's files",
        "a root of its own that shows only what programs need",
        ERRNO_OF
        + f"""
print(json.dumps({{path: error_of(lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
                  for path in {_NONE_OF!r}}}))
""",
        all_refused("ENOENT", "EACCES", "EPERM"),
    ),
    Attack(
        "climbing out of the root",
        "the old root is gone, not hidden",
        """
import os
root = os.open("/", os.O_RDONLY)
up = os.open("../../../../..", os.O_RDONLY, dir_fd=root)
print(os.fstat(up).st_ino == os.fstat(root).st_ino, os.listdir(up) == os.listdir("/"), os.readlink("/proc/self/root"))
""",
        printed("True True /"),
    ),
    Attack(
        "writing outside the private folders",
        "read-only root, read-only binds",
        ERRNO_OF
        + """
paths = ("/x", "/usr/x", "/etc/x", "/etc/passwd", "/dev/x", "/usr/bin/env", sys.executable, json.__file__)
print(json.dumps({path: error_of(lambda: os.close(os.open(path,
    os.O_WRONLY | os.O_CREAT, 0o644))) for path in paths}))
""",
        all_refused("EROFS", "EACCES", "EPERM", "ETXTBSY"),
    ),
    Attack(
        "changing the interpreter for the next run",
        "read-only binds",
        ERRNO_OF
        + """
import site
place = os.path.dirname(json.__file__)
print(json.dumps({
    "remove": error_of(lambda: os.unlink(json.__file__)),
    "rename": error_of(lambda: os.rename(place, place + "2")),
    "mode": error_of(lambda: os.chmod(place, 0o777)),
    "owner": error_of(lambda: os.chown(place, 1000, 1000)),
    "times": error_of(lambda: os.utime(json.__file__, (0, 0))),
    "link": error_of(lambda: os.symlink("/tmp/evil", place + "/evil.py")),
    "start-up file": error_of(lambda: open(sys.prefix + "/lib/evil.pth", "w")),
    "attribute": error_of(lambda: os.setxattr(json.__file__, "user.x", b"1")),
}))
""",
        all_refused("EROFS", "EACCES", "EPERM"),
    ),
    Attack(
        "writing to /proc and /sys",
        "a read-only /proc, no /sys",
        ERRNO_OF
        + """
paths = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger",
         "/proc/self/oom_score_adj", "/proc/self/uid_map", "/proc/self/setgroups", "/proc/self/attr/exec",
         "/proc/irq/0/smp_affinity",
         "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/1/oom_score_adj",
         "/proc/self/timerslack_ns",
         "/sys/kernel/uevent_helper", "/sys/fs/cgroup/memory.max", "/proc/self/loginuid",
         "/proc/self/coredump_filter")
print(json.dumps({path: error_of(lambda: os.close(os.open(path, os.O_WRONLY))) for path in paths}))
""",
        all_refused("EROFS", "EACCES", "EPERM", "ENOENT"),
    ),
    Attack(
        "devices and setuid files of one's own",
        "no capabilities; nosuid and nodev on every mount",
        ERRNO_OF
        + """
import shutil, stat, subprocess
shutil.copy("/bin/sh", "sh"); os.chmod("sh", 0o6755)
print(json.dumps({
    "character": error_of(lambda: os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 1))),
    "block": error_of(lambda: os.mknod("disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0))),
    "setuid": "EPERM" if subprocess.run(["./sh", "-c",
    "id -u"], capture_output=True).stdout == b"1000\\n" else "done",
    "owner": error_of(lambda: os.chown("sh", 0, 0)),
    "capability": error_of(lambda: os.setxattr("sh",
    "security.capability", bytes.fromhex("00000002002000" + "00" * 13))),
    "hard link": error_of(lambda: os.link("/usr/bin/env", "env")),
}))
""",
        all_refused("EPERM", "EXDEV", "EINVAL", "EACCES"),
    ),
    Attack(
        "links in place of files to be fetched",
        "files are fetched without following a link, on no part of the path",
        """
import os
os.symlink("/etc/passwd", "link")
os.symlink("/etc", "folder")
os.symlink("/proc/1/environ", "environ")
os.symlink("/proc/self/root/etc/passwd", "magic")
os.symlink("link", "chain"); os.symlink("loop", "loop")
os.mkdir("real"); os.symlink("..", "real/up")
print("set")
""",
        _nothing_fetched,
        fields={"fetch_files": ["link", "folder/passwd", "environ", "magic", "chain", "loop", "real/up/link", "real"]},
    ),
    Attack(
        "pipes, sockets and devices in place of files to be fetched",
        "only regular files are fetched, without waiting",
        """
import os, socket
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
os.symlink("/dev/zero", "zero"); os.symlink("/dev/random", "random")
print("set")
""",
        _nothing_fetched,
        fields={"fetch_files": ["pipe", "socket", "zero", "random"]},
    ),
    Attack(
        "1000 folders in each other",
        "private folders go as a whole",
        """
import os
for _ in range(1000):
    os.mkdir("deep")
    os.chdir("deep")
open("leaf", "w").write("x")
print("set")
""",
        _nothing_fetched,
        fields={"fetch_files": ["/".join(["deep"] * 100), "/".join(["deep"] * 100) + "/leaf"]},
    ),
    Attack(
        "names of any bytes",
        "names are passed on as they are, and never to a shell",
        """
import os
for name in (b"new\\nline", b"\\xff\\xfe", b"-rf", b"$(id)", b"a" * 255, b" ", b"..x"):
    with open(name, "wb") as file: file.write(b"x")
print("made")
""",
        _names_survive,
        fields={"fetch_files": ["new\nline", "\ufffd", "..x\n"]},
    ),
    Attack(
        "reading another run's files",
        "each run has private folders of its own",
        """
import os
print([sorted(os.listdir(path)) for path in ("/workspace", "/dev/shm")], "secret" in os.listdir("/tmp"))
""",
        printed("[['main.py'], []] False"),
        before="import os\nfor path in ('/workspace', '/tmp', '/dev/shm'): open(path + '/secret', 'w').write('x')",
    ),
    Attack(
        "leaving attributes on shared folders",
        "a folder that was touched is exchanged for a new one",
        """
import os
acl = bytes.fromhex("02000000" "01000700ffffffff" "02000700e8030000" "04000500ffffffff" "10000700ffffffff"
                    "20000500ffffffff")
os.unlink("/workspace/main.py")
for path in ("/workspace", "/tmp", "/dev/shm"):
    for name, value in (("user.left", b"behind"), ("system.posix_acl_access", acl),
    ("system.posix_acl_default", acl)):
        try: os.setxattr(path, name, value)
        except OSError: pass
    os.chmod(path, 0o1777)
print("set")
""",
        printed("set"),
    ),
    Attack(
        "leaving flags and locks on stdin",
        "every run opens its own /dev/null",
        """
import fcntl, os
fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
fcntl.flock(0, fcntl.LOCK_EX)
fcntl.flock(os.open("/usr", os.O_RDONLY), fcntl.LOCK_EX)
print("set")
""",
        printed("set"),
    ),
    Attack(
        "using stdin as memory",
        "a sealed file, open for reading",
        ERRNO_OF
        + """
print(json.dumps({
    "write": error_of(lambda: os.write(0, b"x")),
    "reopen": error_of(lambda: os.write(os.open("/proc/self/fd/0", os.O_RDWR), b"x")),
    "truncate": error_of(lambda: os.ftruncate(0, 0)),
}))
""",
        all_refused("EBADF", "EACCES", "EPERM", "EINVAL", "EROFS"),
        fields={"stdin": "text"},
    ),
    Attack(
        "core dump",
        "core limit of zero that cannot be raised",
        """
import os, resource
try: resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
except ValueError: print(sorted(os.listdir()), flush=True)
os.abort()
""",
        lambda result: _dumped_nothing(result),
        fields={"fetch_files": ["core", "core.1", "core.2"]},
    ),
    Attack(
        "running off with a deleted work dir",
        "private folders go as a whole",
        """
import os, shutil
shutil.rmtree('/workspace', ignore_errors=True); os.chmod('/workspace', 0); raise SystemExit(3)
""",
        ended("error"),
        fields={"fetch_files": ["main.py"]},
    ),
)


def _dumped_nothing(result: RunResult) -> None:
    assert (result.signal, result.stdout, result.files) == (6, "['main.py']\n", {}), result
