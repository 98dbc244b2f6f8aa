"""Access: who may use a server. A bearer token, compared in constant time, and where a server may do without one."""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..schemas.errors import ConfigError, ErrorKind
from .bearer import TOKEN_VARIABLE, check_token, environment_token

OPEN_PATHS = frozenset({"/v1/health", "/v1/ping", "/health"})
"""What needs no token: probes of an orchestrator have none, and learn nothing but that the server is up."""
_LEAST_CHARS = 16


def server_token(
    host: str, token_file: str | None, insecure: bool, *, variable: str = TOKEN_VARIABLE, could: str = "run programs"
) -> str | None:
    """The token that clients must show, from `token_file` or else the environment; None asks for none.

    Args:
        token_file: empty where the option `--token-file` was not used; None where the server has none.
        insecure: do without one even where others than this machine can connect.
        could: what whoever connects could do then, for the error's text.

    Raises:
        ConfigError: it cannot be read or used, or there is none although others than this machine can connect.
    """
    token = _from_file(token_file) if token_file else environment_token(variable)
    if token is not None:
        if len(token) < _LEAST_CHARS:
            source = token_file or variable
            raise ConfigError(f"{source}: the token has {len(token)} characters; {_LEAST_CHARS} at least, {_HOW}")
        return token
    if not insecure and not is_loopback(host):
        sources = variable if token_file is None else f"{variable} or --token-file"
        raise ConfigError(
            f"host: {host!r} can be reached from other machines, and no token is set: whoever connects could "
            f"{could}. Set {sources} ({_HOW}), or --insecure if something else guards it"
        )
    return None


_HOW = "such as of: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


def _from_file(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"token_file: {path} cannot be read: {reason}") from error
    if not token:
        raise ConfigError(f"token_file: {path} is empty; it must hold the token, {_HOW}")
    return check_token(token, path)


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may resolve to anything
        return False


class BearerAuth:
    """ASGI middleware: 401 without the token, before anything of the body is read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or self._is_shown(scope):
            await self._app(scope, receive, send)
            return
        detail = "a token is needed: send the header `Authorization: Bearer TOKEN` with this server's token"
        answer = {"kind": ErrorKind.ARGUMENTS.value, "detail": detail}
        await JSONResponse(answer, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)

    def _is_shown(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                return hmac.compare_digest(value, self._expected)
        return False
