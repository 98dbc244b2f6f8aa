"""Launch: the pipes, memory files and launcher process of one call, and their end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from asyncio.subprocess import Process
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from ..schemas.errors import SandboxError
from .capture import Capture, Collected, attach
from .interpreter import Interpreter
from .jail import launcher
from .jail.frames import Report

_logger = logging.getLogger(__name__)

_F_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW, _SEAL_WRITE = 1033, 2, 4, 8
_END_OF_RUN = b"k"
_DEATH_GRACE_S = 5.0


def memory_file(data: bytes) -> int:
    """A descriptor that reads `data` and that nobody can write: a program could else store things in its stdin."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Launch:
    """One launcher process. Leaving the context ends all of its call's processes and waits until they are gone.

    Every descriptor is opened close-on-exec and given to the launcher by number: a lifeline that leaked into another
    call's launcher would keep this call alive.
    """

    def __init__(
        self, interpreter: Interpreter, bundle: int, *, job: int, stdin: int, stdout: Capture, stderr: Capture
    ) -> None:
        """Takes over the descriptors `job` and `stdin`, and borrows `bundle`."""
        self._interpreter = interpreter
        self._bundle = bundle
        self._fds = ExitStack()
        self._job = self._owned(job)
        self._stdin = self._owned(stdin)
        self._captures = (stdout, stderr)
        self._report = Collected()
        self._transports: list[asyncio.ReadTransport] = []
        self._process: Process | None = None
        self._lifeline = -1

    def _owned(self, fd: int) -> int:
        self._fds.callback(os.close, fd)
        return fd

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _start(self) -> None:
        with self._fds:
            lifeline, self._lifeline = os.pipe()
            self._owned(lifeline)
            stdout, stderr, report = [await self._reading(each) for each in (*self._captures, self._report)]
            passed = (self._bundle, self._job, lifeline, report)
            self._process = await asyncio.create_subprocess_exec(
                *(self._interpreter.executable, "-I", "-S", "-B", "-c", launcher.BOOT),
                *map(str, passed),
                stdin=self._stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=passed,
                env={},
                cwd="/",
                start_new_session=True,  # Ctrl-C in the server's terminal is the server's to handle
            )

    async def _reading(self, protocol: asyncio.Protocol) -> int:
        """Attach `protocol` to a new pipe and return the end for the launcher."""
        read_end, write_end = os.pipe()
        self._owned(write_end)
        self._transports.append(await attach(protocol, read_end))
        return write_end

    def end_run(self) -> None:
        """Ask init to end the program and report."""
        with suppress(BrokenPipeError):
            os.write(self._lifeline, _END_OF_RUN)

    async def report(self, patience_s: float) -> Report:
        """Wait for the end of the call.

        Raises:
            SandboxError: no report came within `patience_s`, or none that can be read.
        """
        try:
            async with asyncio.timeout(patience_s):
                data = await self._report.data()
                for capture in self._captures:
                    await capture.ended()
        except TimeoutError:
            raise SandboxError(f"the jail did not report within {patience_s:.0f} s") from None
        try:
            report: Report = json.loads(data)
        except ValueError:
            # Before the program runs, its stderr is the launcher's.
            _logger.error("no report; stderr: %s", self._captures[1].text())
            raise SandboxError(f"the jail ended without a report ({len(data)} bytes of one)") from None
        return report

    async def _end(self) -> None:
        """Let go of the lifeline and reap. The launcher ends only after the last process of its call."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        try:
            if self._process is not None:
                await _reaped(self._process)
        finally:
            for transport in self._transports:
                transport.close()


async def _reaped(process: Process) -> None:
    try:
        async with asyncio.timeout(_DEATH_GRACE_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()  # takes init along, by its parent death signal
        await process.wait()
