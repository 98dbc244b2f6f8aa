"""Runs: what every way into the server shares. A request is checked, deduplicated, run and counted here."""

from __future__ import annotations

from ..schemas.errors import ErrorKind, RollboxError, ToolError
from ..schemas.run import RunLimits, RunRequest, RunResult
from .idempotency import Idempotency
from .job import check_language
from .metrics import Metrics
from .network import NetworkPolicy
from .pool import Pool
from .settings import SandboxSettings


class Runs:
    """The runs of one server."""

    def __init__(self, pool: Pool, settings: SandboxSettings, metrics: Metrics) -> None:
        self.metrics = metrics
        self.at_a_time = 2 * settings.slots
        """How many runs of one batch may wait or run at a time."""
        self._pool = pool
        self._settings = settings
        self._network = NetworkPolicy(settings.allow_hosts)
        self._idempotency = Idempotency()

    async def run(self, request: RunRequest) -> RunResult:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for more than this server gives, or cannot be served as it is.
            OverloadedError: the queue is full.
            SandboxError: the program could not be run.
        """
        try:
            self.check(request)
            if request.idempotency_key is None:
                return await self._counted(request)
            return await self._idempotency.run(request, lambda: self._counted(request))
        except RollboxError as error:
            self.metrics.count_error(error)
            raise

    async def _counted(self, request: RunRequest) -> RunResult:
        result = await self._pool.run(request)
        self.metrics.count(result)
        return result

    def check(self, request: RunRequest) -> None:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for what this server does not give.
        """
        check_language(request)
        if request.allow_hosts:
            self._network.granted(request.allow_hosts)
        check_limits(request.limits, self._settings)


def check_limits(limits: RunLimits, settings: SandboxSettings) -> None:
    """
    Raises:
        ToolError: (kind `arguments`) they are more than this server gives.
    """
    asked = (
        ("wall_s", limits.wall_s, settings.max_wall_s),
        ("memory_mb", limits.memory_mb, settings.max_memory_mb),
    )
    for field, value, most in asked:
        if value > most:
            text = f"limits.{field}: {value} is more than this server allows ({most})"
            raise ToolError(text, ErrorKind.ARGUMENTS)
