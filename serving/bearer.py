"""The bearer token of a server, as the server and its clients find it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..schemas.errors import ConfigError

TOKEN_VARIABLE = "ROLLBOX_SANDBOX_TOKEN"
"""The environment variable that holds it. Never an option: a command line can be read by all users of a machine."""
RETRIEVER_TOKEN_VARIABLE = "ROLLBOX_RETRIEVER_TOKEN"
"""The same for the search server."""


def environment_token(variable: str = TOKEN_VARIABLE) -> str | None:
    """The token that the environment holds in `variable`.

    Raises:
        ConfigError: it cannot be sent in a header.
    """
    token = os.environ.get(variable, "").strip()
    return check_token(token, variable) if token else None


def check_token(token: str, source: str) -> str:
    """`token`, if it can be sent in a header.

    Raises:
        ConfigError: it cannot; the text names `source` and not the token.
    """
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{source}: a token consists of printable ASCII characters without spaces")
    return token


def check_one_proof(url: str, headers: Mapping[str, str]) -> None:
    """
    Raises:
        ConfigError: a token is to be sent to an address that has a user and a password in it, which are sent in the
            same header.
    """
    server = url.partition("://")[2].partition("/")[0]
    if "Authorization" in headers and "@" in server:
        raise ConfigError(
            f"{url}: its address holds a user and a password, and there is a token or key for it too; "
            "leave one of them out"
        )


def authorization(token: str | None) -> dict[str, str]:
    """The header that shows `token`."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}
