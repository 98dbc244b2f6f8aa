"""The process that the server starts for each zygote: enters the namespaces, leaves the zygote in them, waits for it.

Started as `python -I -S -B -c BOOT BUNDLE CONFIG CONTROL`, all descriptor numbers. The zygote is PID 1 of a namespace
of its own, so that everything below it ends with it. It keeps root of a user namespace in which only nobody is mapped:
that is what it takes to make slots, and means nothing outside.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import enter, launcher, messages, syscalls, zygote
from .steps import StepError, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .frames import ZygoteConfig

BOOT = "import sys; sys.path.append('/proc/self/fd/' + sys.argv[1]); from jail.spawner import main; main()"
_ROOT_SIZE_MB = 64


def main() -> NoReturn:
    bundle, config_fd, control = (int(argument) for argument in sys.argv[1:4])
    with open(config_fd, encoding="utf-8", closefd=False) as file:
        config: ZygoteConfig = json.load(file)
    try:
        sources = launcher.leave_the_machine(config["binds"], config["namespaces"], inner_id=0)
        pid = os.fork()
        if pid == 0:
            _become_zygote(config, sources, (bundle, config_fd, control))
    except StepError as error:
        messages.send(messages.channel(control), messages.FAILED, error.as_failure())
        os._exit(1)
    # The server must see the end of the zygote, not ours, as the end of the channel.
    os.close(control)
    _, wait_status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(wait_status) & 0xFF)


def _become_zygote(config: ZygoteConfig, sources: enter.Sources, passed: tuple[int, ...]) -> NoReturn:
    perform((("parent death signal", lambda: syscalls.set_parent_death_signal(signal.SIGKILL)),))
    enter.build_root(sources, _ROOT_SIZE_MB, config["namespaces"], for_program=False, hosts=config["hosts"])
    perform((("execute", lambda: _execute(config, passed)),))
    os._exit(1)


def _execute(config: ZygoteConfig, passed: tuple[int, ...]) -> NoReturn:
    os.lseek(passed[1], 0, os.SEEK_SET)
    for fd in passed:
        os.set_inheritable(fd, True)
    command = [config["executable"], "-c", zygote.BOOT, *map(str, passed), " " * zygote.ARGUMENT_ROOM]
    os.execve(command[0], command, config["env"])  # noqa: S606 - no shell is wanted
