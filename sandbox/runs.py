"""Runs: what every way into the server shares. A request is checked, deduplicated, run and counted here."""

from __future__ import annotations

from ..schemas.errors import RollboxError
from ..schemas.run import RunRequest, RunResult
from ..serving.client_cap import ClientCap
from .idempotency import Idempotency
from .metrics import Metrics
from .network import NetworkPolicy
from .pool import Pool
from .programs import Prepared, Programs
from .settings import SandboxSettings
from .siblings import Siblings
from .toolchains import Toolchains


class Runs:
    """The runs of one server."""

    def __init__(
        self, pool: Pool, settings: SandboxSettings, metrics: Metrics, toolchains: Toolchains, siblings: Siblings
    ) -> None:
        self.metrics = metrics
        self.programs = Programs(pool, settings, toolchains)
        self.at_a_time = min(2 * settings.slots, settings.max_per_client or 2 * settings.slots)
        """How many runs of one batch may wait or run at a time."""
        self._network = NetworkPolicy(settings.allow_hosts)
        self.siblings = siblings
        self._idempotency = Idempotency()
        self._cap = ClientCap(settings.max_per_client)

    async def run(self, request: RunRequest) -> RunResult:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for more than this server gives, or cannot be served as it is.
            OverloadedError: the queue is full, or the client has as many runs as it may.
            SandboxError: the program could not be run.
        """
        owner = self.siblings.elsewhere(request.idempotency_key)
        if owner is not None:
            return await self.siblings.run(owner, request)
        try:
            self.check(request)
            if request.idempotency_key is None:
                return await self._counted(request)
            return await self._idempotency.run(request, lambda: self._counted(request))
        except RollboxError as error:
            self.metrics.count_error(error)
            raise

    async def _counted(self, request: RunRequest) -> RunResult:
        with self._cap.hold(request.client):
            result = await self.programs.run(request)
        self.metrics.count(result)
        return result

    async def run_prepared(self, request: RunRequest, prepared: Prepared) -> RunResult:
        """Run a program that was checked and prepared.

        Raises: as `run`.
        """
        try:
            with self._cap.hold(request.client):
                result = await self.programs.run_prepared(request, prepared)
        except RollboxError as error:
            self.metrics.count_error(error)
            raise
        self.metrics.count(result)
        return result

    def check(self, request: RunRequest) -> None:
        """
        Raises:
            ToolError: (kind `arguments`) it asks for what this server does not give.
        """
        self.programs.check(request)
        if request.allow_hosts:
            self._network.granted(request.allow_hosts)
