"""The settings of one sandbox server."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

OURS_ALONE = frozenset({"worker", "listen_fd", "workers_dir", "ready_fd", "lifeline_fd", "users_socket"})
"""Settings that processes of ours give each other, and no user does."""


class SandboxSettings(BaseModel):
    """What a sandbox server is started with.

    Attributes:
        port: 0 takes a free one, which the server prints, or writes to `ready_fd`.
        pool: `zygote` forks each program from an interpreter that has started already; `process` starts a new one for
            each, for kernels where user namespaces cannot be nested.
        isolation: `full`, or the layers to do without where a machine lacks them, with commas between, such as
            `no-seccomp,no-cgroup`. A layer that is missing without being named here keeps the server from starting.
        preload: tiers, with commas between, whose zygotes are started before the server serves: `math,data`. Others
            start with the first program that needs them.
        slots: programs that run at a time; the default is one per usable core.
        queue: requests that may wait for a slot; one more is answered with 429.
        allow_hosts: hosts that programs may be allowed to reach, by name and port, with commas between:
            `pypi.org:443,10.0.0.5:8000`. A program reaches those of them that its request names too.
        workers: processes that share the address, each with its own pool: slots, queue and `max_per_client` are divided
            among them.
        worker: number of this server among those; ids of its sessions begin with `s{worker}-`.
        listen_fd, workers_dir: what a worker is given: the descriptor of its listening socket, and the private folder
            with the sockets by which workers reach each other.
        max_body_mb: the largest request body. `max_wall_s`, `max_memory_mb`: the most that a request may ask for.
        max_sessions, max_sessions_per_client: live sessions in all, and of each client; one more is answered with 429.
        session_idle_s: how long a session may be without a cell. session_lifetime_s: how long it may live.
        max_per_client: runs that one `client` may have waiting or running; one more is answered with 429. 0: no cap.
        token_file: a file with the token that clients must show, in place of the variable ROLLBOX_SANDBOX_TOKEN.
        insecure: serve without a token even where other machines can connect.
        drain_s: how long SIGTERM waits for running programs before it ends them.
        ready_fd: descriptor to which the port is written, as a line, once requests are served; else
            the address is printed.
        users_socket: path of a local socket. The server leaves the process that started it, and ends when nobody is
            connected to it any more.
        lifeline_fd: descriptor of a pipe; the server ends when its other end closes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    pool: Literal["zygote", "process"] = "zygote"
    isolation: str = "full"
    preload: str = ""
    slots: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=4096)
    queue: int = Field(default=1024, ge=0)
    allow_hosts: str = ""
    workers: int = Field(default=1, ge=1, le=256)
    worker: int = Field(default=0, ge=0)
    listen_fd: int | None = Field(default=None, ge=3)
    workers_dir: str = ""
    max_body_mb: int = Field(default=96, ge=1, le=1024)
    max_wall_s: float = Field(default=600.0, gt=0, le=3600)
    max_memory_mb: int = Field(default=16_384, ge=16)
    max_sessions: int = Field(default=1024, ge=0)
    max_sessions_per_client: int = Field(default=1024, ge=1)
    session_idle_s: float = Field(default=1800.0, gt=0)
    session_lifetime_s: float = Field(default=86_400.0, gt=0)
    max_per_client: int = Field(default=0, ge=0)
    token_file: str = ""
    insecure: bool = False
    drain_s: int = Field(default=30, ge=0)
    ready_fd: int | None = Field(default=None, ge=3)
    lifeline_fd: int | None = Field(default=None, ge=0)
    users_socket: str | None = None
