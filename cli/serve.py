"""`rollbox serve`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..schemas.errors import ConfigError
from ..schemas.validation import validated


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8080,
    slots: Annotated[int | None, typer.Option(help="Programs that run at a time; default: one per core.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that share the address, the slots and the queue.")] = 1,
    queue: Annotated[int, typer.Option(help="Requests that may wait; one more is answered with 429.")] = 1024,
    max_wall_s: Annotated[float, typer.Option(help="Most seconds that a request may ask for.")] = 600.0,
    max_memory_mb: Annotated[int, typer.Option(help="Most MiB that a request may ask for.")] = 16_384,
    max_body_mb: Annotated[int, typer.Option(help="The largest request body, in MiB.")] = 96,
    max_sessions: Annotated[int, typer.Option(help="Live sessions; one more is answered with 429.")] = 1024,
    max_sessions_per_client: Annotated[int, typer.Option(help="Live sessions of one client.")] = 1024,
    session_idle_s: Annotated[float, typer.Option(help="Seconds that a session may be without a cell.")] = 1800.0,
    session_lifetime_s: Annotated[float, typer.Option(help="Seconds that a session may live.")] = 86_400.0,
    drain_s: Annotated[int, typer.Option(help="Seconds that SIGTERM leaves running programs.")] = 30,
    max_per_client: Annotated[int, typer.Option(help="Runs that one client may have at a time; 0: no cap.")] = 0,
    token_file: Annotated[str, typer.Option(help="File with the token; default: $ROLLBOX_SANDBOX_TOKEN.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="No token even beyond loopback.")] = False,
    pool: Annotated[str, typer.Option(help="zygote: fork ahead; process: a new interpreter for each call.")] = "zygote",
    preload: Annotated[str, typer.Option(help="Zygotes to start before serving, such as math,data.")] = "",
    isolation: Annotated[str, typer.Option(help="full, or layers to do without, such as no-seccomp.")] = "full",
    allow_hosts: Annotated[str, typer.Option(help="Hosts that programs may ask to reach, such as pypi.org:443.")] = "",
) -> None:
    """Serve the sandbox over HTTP (native API, and SandboxFusion's /run_code)."""
    try:
        from ..sandbox.serve import serve as serve_sandbox
        from ..sandbox.settings import SandboxSettings
    except ImportError as error:
        raise ConfigError(f"serve: {error}; install it with: pip install 'rollbox[server]'") from error
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "workers": workers,
        "queue": queue,
        "max_wall_s": max_wall_s,
        "max_memory_mb": max_memory_mb,
        "max_body_mb": max_body_mb,
        "max_sessions": max_sessions,
        "max_sessions_per_client": max_sessions_per_client,
        "session_idle_s": session_idle_s,
        "session_lifetime_s": session_lifetime_s,
        "drain_s": drain_s,
        "max_per_client": max_per_client,
        "token_file": token_file,
        "insecure": insecure,
        "pool": pool,
        "preload": preload,
        "isolation": isolation,
        "allow_hosts": allow_hosts,
    }
    if slots is not None:
        options["slots"] = slots
    serve_sandbox(validated(SandboxSettings, options, "serve"))
