"""A zygote: an interpreter that has imported a tier's packages, and makes slots by forking itself.

It never sees a job: what a program is told reaches only the child that becomes the program, so that nothing of one run
is in the memory from which the next is forked.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import select
import sys
from contextlib import suppress

from . import messages, policy, slot, tiers
from .ready import Kit, Program
from .steps import StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from .frames import ZygoteConfig

BOOT = """\
import sys
sys.path[0] = '/proc/self/fd/' + sys.argv[1]
from jail.zygote import main
program = main()
try:
    exec(program.load(), program.names)
    if program.last is not None:
        program.keep(eval(program.last, program.names))
except BaseException as error:
    program.end(error)
program.end(None)
"""
"""Only a child that becomes a program returns from `main`: so a single frame is below the program's own."""
ARGUMENT_ROOM = 4096
"""Bytes of command line that a program's own can replace."""
_REAP_INTERVAL_MS = 50


def main() -> Program:
    """Serve; returns in each child that is to become a program."""
    bundle, config_fd, control = (int(argument) for argument in sys.argv[1:4])
    with open(config_fd, encoding="utf-8") as file:
        config: ZygoteConfig = json.load(file)
    channel = messages.channel(control)
    os.set_inheritable(control, False)
    sys.path[0] = policy.WORK_DIR
    for name in config["hidden_env"]:
        os.environ.pop(name, None)
    packages = _import_tier(config["tier"])
    os.close(bundle)
    os.umask(0o022)
    _forget_ourselves()
    kit = Kit(base64.b64decode(config["seccomp"]), base64.b64decode(config["session_seccomp"]))
    setting = slot.Setting(config["binds"], config["slot_namespaces"], kit)
    gc.collect()
    gc.freeze()  # a collection in a child would write to every object, and so copy every page
    messages.send(channel, messages.READY, {"packages": packages, "data_bytes": _data_bytes()})
    setting.kit.held += [channel, config, packages]
    return _serve(channel, setting)


def _import_tier(tier: str) -> dict[str, str]:
    """Import and warm; returns the versions of the packages that are there."""
    packages: dict[str, str] = {}
    for name in tiers.COMMON_MODULES:
        __import__(name)
    for name in tiers.MODULES[tier]:
        try:
            packages[name] = str(getattr(__import__(name), "__version__", ""))
        except ImportError:
            continue
    for source in (tiers.COMMON_WARM_UP, *(tiers.WARM_UP[tier])):
        for _ in range(2):
            _warm(source)
    return packages


def _warm(source: str) -> None:
    try:
        exec(compile(source, "<warm-up>", "exec", dont_inherit=True), {"__name__": "warm_up"})  # noqa: S102
    except ImportError:
        return  # a package of the tier is not installed


def _forget_ourselves() -> None:
    """Take what only we needed out of a program's sight; it lives on in the frames that use it."""
    for name in [name for name in sys.modules if name == "jail" or name.startswith("jail.")]:
        del sys.modules[name]
    for path in [path for path in sys.path_importer_cache if path.startswith(("/proc/self/fd/", policy.WORK_DIR))]:
        del sys.path_importer_cache[path]


def _data_bytes() -> int:
    """What RLIMIT_DATA would count of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmData:")) * 1024


def _serve(channel: socket, setting: slot.Setting) -> Program:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    ended = 0  # slots that the server knows to have ended, less those that were reaped
    while True:
        # A slot's channel closes a moment before it can be reaped.
        awaited = poll.poll(_REAP_INTERVAL_MS if ended > 0 else None)
        ended -= _reap()
        if not awaited:
            continue
        kind, _, fds = messages.receive(channel)
        if not kind:
            os._exit(0)  # the server is gone, and everything below us goes with us
        if kind == messages.REAP:
            ended += 1
        elif kind == messages.NEW_SLOT:
            program = _new_slot(channel, messages.channel(fds[0]), setting)
            if program is not None:
                return program


def _reap() -> int:
    """Reap the slots that have ended, and return how many."""
    number = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            number += 1
    except ChildProcessError:
        pass
    return number


def _new_slot(control: socket, channel: socket, setting: slot.Setting) -> Program | None:
    """Fork a slot's init; returns a program only in a child of that init."""
    between = os.fork()
    if between:
        channel.close()
        os.waitpid(between, 0)
        return None
    # A new pid namespace holds only those that are forked after entering it: hence one process in between.
    try:
        control.close()
        slot.enter_namespaces(setting.namespaces)
        if os.fork():
            os._exit(0)
        return slot.serve(channel, setting)
    except ConnectionError:
        os._exit(0)  # the server is gone, or has given this slot up
    except (StepError, OSError) as error:
        failed = error if isinstance(error, StepError) else StepError("slot", error)
        with suppress(OSError):
            messages.send(channel, messages.FAILED, failed.as_failure())
    os._exit(1)
