"""Compare mathematical answers by math-verify, in child processes that can be ended whatever they are doing.

A thread cannot be stopped, and math-verify's own limit needs signals, which only a main thread gets. CPU time is the
answer's doing: too much of it means "not equal". Time by the clock is ours: it is an `InfraError`.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ..schemas.errors import ConfigError, InfraError

_CPU_S, _WALL_S, _START_WALL_S, _MEMORY_MB = 5.0, 120.0, 300.0, 1024
# Ends that a mathematical expression can bring about; any other death is not its doing.
_BY_THE_ANSWER = frozenset({signal.SIGPROF, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS})


class MathWorker:
    """One child. Not for two threads at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", f"{__package__}.math_worker", str(_MEMORY_MB)]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._begun = b""
        if self._line(_START_WALL_S) != b"ready":
            self.close()
            raise InfraError(f"the process that compares answers did not start: exit code {self._process.returncode}")

    def equal(self, gold: str, answer: str, cpu_s: float, wall_s: float) -> bool | None:
        """Whether two LaTeX expressions are equal; None when finding out took too much. The worker is dead then.

        Raises:
            InfraError: it did not answer in `wall_s` seconds, or died of something else.
        """
        assert self._process.stdin is not None
        request = json.dumps({"gold": gold, "answer": answer, "cpu_s": cpu_s})
        try:
            self._process.stdin.write(request.encode() + b"\n")
            line = self._line(wall_s)
        except OSError as error:
            raise InfraError(f"the process that compares answers is gone: {error}") from error
        if line is not None:
            return bool(json.loads(line))
        number = -self._process.wait()
        if number in _BY_THE_ANSWER:
            return None
        raise InfraError(f"the process that compares answers ended with code {-number}")

    def close(self) -> None:
        """Kill and reap."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, wall_s: float) -> bytes | None:
        """The next line, or None when the child has ended."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + wall_s
        while b"\n" not in self._begun:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise InfraError(f"comparing answers took more than {wall_s:.0f} s; the machine is too busy")
            chunk = os.read(self._process.stdout.fileno(), 4096)
            if not chunk:
                return None
            self._begun += chunk
        line, _, self._begun = self._begun.partition(b"\n")
        return line


class MathPool:
    """Some workers, each started when it is first needed, and started again when it died."""

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rollbox-math")
        self._idle: queue.SimpleQueue[MathWorker] = queue.SimpleQueue()

    async def equal(self, gold: str, answer: str, *, cpu_s: float = _CPU_S, wall_s: float = _WALL_S) -> bool | None:
        """See `MathWorker.equal`. Waits for a free worker."""
        work = self._threads.submit(self._equal, gold, answer, cpu_s, wall_s)
        return await asyncio.wrap_future(work)

    def _equal(self, gold: str, answer: str, cpu_s: float, wall_s: float) -> bool | None:
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = MathWorker()
        try:
            found = worker.equal(gold, answer, cpu_s, wall_s)
        except BaseException:
            worker.close()
            raise
        if found is None:
            worker.close()
        else:
            self._idle.put(worker)
        return found

    def close(self) -> None:
        """End the workers, once what runs has ended."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get_nowait().close()


_lock = threading.Lock()
_shared: list[MathPool] = []


def shared_pool() -> MathPool:
    """The pool of this process, with up to four workers; it ends with the interpreter.

    Raises:
        ConfigError: math-verify is not installed.
    """
    with _lock:
        if not _shared:
            if importlib.util.find_spec("math_verify") is None:
                raise ConfigError("math answers: math-verify is missing: pip install 'rollbox[rewards]'")
            _shared.append(MathPool(min(4, os.cpu_count() or 1)))
            atexit.register(_shared[0].close)
        return _shared[0]
