"""The bearer token of a sandbox server, as the server and its clients find it."""

from __future__ import annotations

import os

from ..schemas.errors import ConfigError

TOKEN_VARIABLE = "ROLLBOX_SANDBOX_TOKEN"
"""The environment variable that holds it. Never an option: a command line can be read by all users of a machine."""


def environment_token() -> str | None:
    """The token of the environment.

    Raises:
        ConfigError: it cannot be sent in a header.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return check_token(token, TOKEN_VARIABLE) if token else None


def check_token(token: str, source: str) -> str:
    """`token`, if it can be sent in a header.

    Raises:
        ConfigError: it cannot; the text names `source` and not the token.
    """
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{source}: a token consists of printable ASCII characters without spaces")
    return token


def authorization(token: str | None) -> dict[str, str]:
    """The header that shows `token`."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}
