"""Attacks over sockets: on the server, on other machines, on other runs, on the kernel's protocols."""

from __future__ import annotations

from .attack import ERRNO_OF, Attack, all_refused, printed

_CONNECT = (
    ERRNO_OF
    + """
import socket
def reached(address, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as end:
        end.settimeout(3)
        try:
            end.connect(address)
            end.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
            return "done"
        except TimeoutError:
            return "timeout"
        except OSError as error:
            return errno.errorcode[error.errno]
"""
)

ATTACKS = (
    Attack(
        "the server's own port",
        "a net namespace of each slot",
        _CONNECT
        + 'print(json.dumps({f"{host}": reached((host, PORT)) for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0")} '
        '| {"::1": reached(("::1", PORT), socket.AF_INET6)}))',
        all_refused("ECONNREFUSED", "EADDRNOTAVAIL", "ENETUNREACH", "EAFNOSUPPORT"),
    ),
    Attack(
        "metadata addresses",
        "no interface but loopback",
        _CONNECT
        + """
near = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192")
print(json.dumps({host: reached((host, 80)) for host in near}
                 | {host: reached((host, 80), socket.AF_INET6) for host in ("fd00:ec2::254", "fe80::a9fe:a9fe")}))
""",
        all_refused("ENETUNREACH", "EHOSTUNREACH", "EAFNOSUPPORT", "EINVAL", "EADDRNOTAVAIL"),
    ),
    Attack(
        "other machines and name servers",
        "no interface but loopback",
        _CONNECT
        + """
answers = {f"{host}": reached((host, 443)) for host in ("1.1.1.1", "192.0.2.1", "10.0.0.1", "172.17.0.1")}
answers |= {f"dns {host}": reached((host, 53), kind=socket.SOCK_DGRAM) for host in ("8.8.8.8", "10.0.0.2")}
try:
    socket.getaddrinfo("example.com", 80)
    answers["name"] = "done"
except OSError:
    answers["name"] = "ENETUNREACH"
print(json.dumps(answers))
""",
        all_refused("ENETUNREACH"),
    ),
    Attack(
        "raw and packet sockets",
        "no capabilities; seccomp",
        ERRNO_OF
        + """
print(json.dumps({
    "raw": errno_of("socket", 2, 3, 1), "raw of any": errno_of("socket", 2, 3, 255),
    "raw 6": errno_of("socket", 10, 3, 58),
    "packet": errno_of("socket", 17, 3, 0x300), "old packet": errno_of("socket", 2, 10, 0x300),
}))
""",
        all_refused("EPERM", "EPROTONOSUPPORT", "EACCES"),
    ),
    Attack(
        "socket families of the host and of kernel modules",
        "seccomp: unix, inet, inet6 and netlink alone",
        ERRNO_OF
        + """
families = [family for family in range(3, 50) if family not in (10, 16)]
print(json.dumps({str(family): errno_of("socket", family, kind, 0) for family in families for kind in (1, 2, 5)}))
""",
        all_refused("EPERM"),
    ),
    Attack(
        "protocols of kernel modules",
        "seccomp: TCP, UDP and ping, and of netlink only routes",
        ERRNO_OF
        + """
answers = {f"inet {number}": errno_of("socket", family, kind, number)
           for family in (2, 10) for kind, number in ((1, 132), (5, 132), (6, 33), (1, 262), (2, 136), (2, 115))}
answers |= {f"netlink {number}": errno_of("socket", 16, 3, number) for number in range(1, 32)}
print(json.dumps(answers))
""",
        all_refused("EPERM", "EPROTONOSUPPORT"),
    ),
    Attack(
        "changing the jail's network",
        "no capabilities",
        ERRNO_OF
        + """
import fcntl, socket, struct
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
request = b"lo".ljust(16, b"\\0") + struct.pack("HH4s", 2, 0, bytes((127, 0, 0, 9))) + bytes(8)
print(json.dumps({
    "address": error_of(lambda: fcntl.ioctl(end, 0x8916, request)),
    "down": error_of(lambda: fcntl.ioctl(end, 0x8914, b"lo".ljust(16, b"\\0") + bytes(24))),
    "route": error_of(lambda: fcntl.ioctl(end, 0x890B, bytes(120))),
    "tun": error_of(lambda: os.open("/dev/net/tun", os.O_RDWR)),
    "mark": error_of(lambda: end.setsockopt(1, 36, 1)),
    "force buffer": error_of(lambda: end.setsockopt(1, 32, 1 << 30)),
}))
""",
        all_refused("EPERM", "EINVAL", "ENOENT", "EACCES", "ENOPROTOOPT"),
    ),
    Attack(
        "abstract sockets of other runs",
        "they belong to the net namespace, and end with the run",
        """
import socket
names = [line.split()[7:] for line in open("/proc/net/unix").read().splitlines()[1:] if len(line.split()) > 7]
try:
    socket.socket(socket.AF_UNIX).connect("\\0left-behind")
    print("connected")
except ConnectionRefusedError:
    print("refused", names)
""",
        printed("refused []"),
        before="""
import os, socket, time
end = socket.socket(socket.AF_UNIX)
end.bind('\\0left-behind'); end.listen()
if os.fork() == 0: os.setsid(); time.sleep(60)
""",
    ),
    Attack(
        "listening on a port for the next run",
        "it ends with the run; a slot with a connection left is thrown away",
        """
import socket
listener = socket.socket(); listener.bind(("127.0.0.1", 5001)); listener.listen()
client = socket.create_connection(("127.0.0.1", 5001))
listener.accept()[0].close(); client.recv(1); client.close()
print("free")
""",
        printed("free"),
        before="""
import os, socket, time
listener = socket.socket(); listener.bind(("127.0.0.1", 5001)); listener.listen()
client = socket.create_connection(("127.0.0.1", 5001))
listener.accept()[0].close(); client.recv(1); client.close()
if os.fork() == 0: os.setsid(); time.sleep(60)
""",
    ),
)
