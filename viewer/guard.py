"""What keeps the page to its reader: a check of the Host header, and the headers that confine what is shown."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from fastapi.responses import PlainTextResponse
from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware. A site whose name has been pointed at this machine (DNS rebinding) is refused with 421.

    Such a site's requests carry its name as Host. So a Host must be an address, `localhost`, or the name that the
    server was told to listen on.

    Args:
        host: that name or address.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._names = {"localhost", host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) == 1 and self._allowed(hosts[0]):
            await self._app(scope, receive, send_confined)
            return
        refusal = PlainTextResponse("This Host is not served: open the page by the address that was printed.\n", 421)
        await refusal(scope, receive, send_confined)

    def _allowed(self, host: str) -> bool:
        name = host.lower()
        if ":" in name and not name.endswith("]"):
            name, _, port = name.rpartition(":")
            if not port.isdecimal():
                return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True
