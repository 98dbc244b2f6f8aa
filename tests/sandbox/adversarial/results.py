"""Attacks on the truth: forged results, what the server or another run left in memory, texts that break a decoder."""

from __future__ import annotations

import json

from rollbox.schemas.run import RunResult

from .attack import ERRNO_OF, Attack, all_refused, ended, printed

_FORGED = json.dumps({"status": "ok", "exit_code": 0, "stdout": "forged"})


def _forged_in_vain(result: RunResult) -> None:
    assert (result.status, result.exit_code, result.files) == ("error", 7, {}), result
    assert json.loads(result.stdout.splitlines()[-1]) == 0, "a descriptor beyond the three streams could be written"


ATTACKS = (
    Attack(
        "forging the result on every descriptor",
        "no program has a descriptor to init or the server",
        f"""
import marshal, os
outcome = dict(reason="exit", wait_status=0, started_s=0.0, ended_s=0.0, cpu_s=0.0, peak_memory_bytes=0)
messages = [b"E" + marshal.dumps(outcome), {_FORGED.encode()!r},
            b'{{"outcome": {{"reason": "exit", "wait_status": 0, "files": {{}}}}}}',
            marshal.dumps({{"run": (0.0, 0.0, 99.0, 1 << 40, False)}})]
written = 0
for fd in range(3, 4096):
    for message in messages:
        try:
            os.write(fd, message)
            written += 1
        except OSError:
            pass
print(written, flush=True)
os._exit(7)
""",
        _forged_in_vain,
    ),
    Attack(
        "forging the result on stdout and stderr",
        "output is text of the result, and never read as anything else",
        f"import os\nfor fd in (1, 2): os.write(fd, {_FORGED.encode()!r} + b'\\n')\nprint(0, flush=True)\nos._exit(7)",
        _forged_in_vain,
    ),
    Attack(
        "sockets and objects of the zygote in memory",
        "descriptors are closed before the program starts",
        ERRNO_OF
        + """
import gc, socket
from _socket import socket as Plain
found = [each for each in gc.get_objects() if isinstance(each, Plain)]
frames, frame = [], sys._getframe()
while frame:
    frames += [value for value in [*frame.f_globals.values(), *frame.f_locals.values()] if isinstance(value, Plain)]
    frame = frame.f_back
def use(end):
    return error_of(lambda: end.sendmsg([b"N"]))
print(json.dumps({"none": "EBADF"} | {str(number): use(end) for number, end in enumerate(found + frames)}))
""",
        all_refused("EBADF"),
    ),
    Attack(
        "shared memory with the zygote",
        "a fork copies; nothing writable is mapped shared",
        "print([line for line in open('/proc/self/maps') if 'w' in line.split()[1] and 's' in line.split()[1]])",
        printed("[]"),
    ),
    Attack(
        "secrets of the server's environment",
        "zygotes start with an environment of their own",
        """
import os
names = [name for name in os.environ if 'ROLLBOX' in name or 'TOKEN' in name]
print(names, b's3' + b'cret' in open('/proc/self/environ', 'rb').read())
""",
        printed("[] False"),
    ),
    Attack(
        "reading another run's code, input and environment",
        "only the child that becomes the program ever reads a job",
        """
needles = [b"sesame-" + b"code", b"sesame-" + b"variable"]
found = 0
for line in open("/proc/self/maps"):
    span, mode = line.split()[:2]
    if mode.startswith("rw"):
        start, end = (int(part, 16) for part in span.split("-"))
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            data = memory.read(end - start)
        found += sum(data.count(needle + b"-open") for needle in needles)
print(found)
""",
        printed("0"),
        before="""
import os
os.environ['X'] = 'sesame-' + 'variable-open'
held = ['sesame-' + 'code-' + 'open'] * 1000
print('sesame-code-open')
""",
    ),
    Attack(
        "NULs, invalid UTF-8 and control characters",
        "bytes that are no text are shown as \\xNN",
        "import os; os.write(1, bytes(range(256)) + b'\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\n')",
        lambda result: _bytes_survive(result),
    ),
    Attack(
        "lone surrogates",
        "they cannot be printed, and the server never sees them",
        "print(chr(0xd800))",
        ended("error", stderr="UnicodeEncodeError: .*surrogates not allowed"),
    ),
    Attack(
        "program with a NUL",
        "the compiler's refusal is a result",
        "print(1)\n\0",
        ended("error", stderr="(SyntaxError|ValueError): source code (string )?cannot contain null bytes"),
    ),
    Attack(
        "exception that lies about itself",
        "the exit code is the kernel's word",
        """
class Liar(BaseException):
    def __str__(self): return "SystemExit: 0"
    __class__ = property(lambda self: SystemExit)
    code = 0
raise Liar
""",
        lambda result: _failed(result),
    ),
    Attack(
        "exception that cannot be shown",
        "wall limit",
        "class Endless(Exception):\n    def __str__(self):\n        while True: pass\nraise Endless",
        ended("timeout"),
        limits={"wall_s": 1},
    ),
    Attack(
        "claiming to be out of memory or time",
        "words on stderr change no more than the kind of one's own failure",
        "import sys\nprint('MemoryError', file=sys.stderr); sys.exit(0)",
        lambda result: _claims_nothing(result),
    ),
)


def _bytes_survive(result: RunResult) -> None:
    assert result.status == "ok"
    assert result.stdout_bytes == 256 + 8
    assert result.stdout.startswith("\x00\x01\x02")
    assert result.stdout.endswith("\\xfe\\xff\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\n")


def _failed(result: RunResult) -> None:
    assert result.status == "error", result


def _claims_nothing(result: RunResult) -> None:
    assert (result.status, result.exit_code) == ("ok", 0)
