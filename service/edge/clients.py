"""ASGI middleware that tells whose request it is."""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from service.batching.clients import Client, working_for
from service.edge.keys import KEY

# an IPv6 subscriber has a network of this length at least, and any address in it
_NETWORK_BITS = 64


class Clients:
    """What a request starts works for its client: the API key, else the peer's address.

    Args:
        app: the rest of the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with working_for(identify(scope)):
            await self._app(scope, receive, send)


def identify(scope: Scope) -> Client:
    """The client of a request; its name holds the name of the key, never the key."""
    if KEY in scope:
        return Client(f"key {scope[KEY]}")
    host = (scope.get("client") or ("",))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return Client(f"peer {host}")
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False)
            return Client(f"address {network}")
        address = address.ipv4_mapped
    return Client(f"address {address}")
