"""The probe: a program that reports all that a run before it could have left behind on its slot."""

from __future__ import annotations

PROBE = r"""
import fcntl, json, os, resource, socket, subprocess, sys, threading

def text(path):
    with open(path) as file:
        return file.read()

def folder(path):
    state, volume = os.stat(path), os.statvfs(path)
    return [sorted(os.listdir(path)), oct(state.st_mode), state.st_uid, os.listxattr(path), volume.f_blocks,
            volume.f_bfree, volume.f_ffree]

def lock(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "free"
    except OSError:
        return "taken"
    finally:
        os.close(fd)

def pipe_size():
    ends = os.pipe()
    size = fcntl.fcntl(ends[0], 1032)
    for fd in ends:
        os.close(fd)
    return size

status = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
mounts = [line.split() for line in text("/proc/self/mountinfo").splitlines()]
seen = {
    "folders": {path: folder(path) for path in ("/workspace", "/tmp", "/dev/shm", "/")},
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "stdin flags": fcntl.fcntl(0, fcntl.F_GETFL),
    "pipe sizes": [fcntl.fcntl(1, 1032), fcntl.fcntl(2, 1032), pipe_size()],
    "locks": [lock("/dev/null"), lock("/usr")],
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
               if name.startswith("RLIMIT_")},
    "affinity": sorted(os.sched_getaffinity(0)),
    "priority": [os.nice(0), os.sched_getscheduler(0)],
    "status": {name: status[name].strip() for name in (
        "Uid", "Gid", "Groups", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp", "SigQ",
        "SigPnd", "ShdPnd", "SigBlk", "SigIgn")},
    "score": text("/proc/self/oom_score_adj"),
    "umask": os.umask(0o022),
    "place": [os.getcwd(), sys.argv[0], sys.path[0]],
    "environment": dict(os.environ),
    "sockets": {name: len(text("/proc/net/" + name).splitlines()) for name in (
        "tcp", "tcp6", "udp", "udp6", "unix", "raw")},
    "connections": text("/proc/net/sockstat").partition("TCP: ")[2].split()[1:6:4],
    "interfaces": [name for _, name in socket.if_nameindex()],
    "routes": [text("/proc/net/route"), text("/proc/net/ipv6_route").count("\n")],
    "ipc": {name: len(text("/proc/sysvipc/" + name).splitlines()) for name in ("shm", "sem", "msg")},
    "host": socket.gethostname(),
    "mounts": sorted(mount[4] + " " + mount[5] for mount in mounts),
    "child": subprocess.run(["/bin/echo", "works"], capture_output=True, text=True).stdout,
    "modules": sorted(name for name in sys.modules if name in ("antigravity", "this")),
}
thread = threading.Thread(target=lambda: seen.__setitem__("thread", "works"))
thread.start()
thread.join()
print(json.dumps(seen))
"""
