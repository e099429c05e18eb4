"""ASGI middleware that identifies the client of a request."""

import ipaddress
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from service.embedding.batching.clients import Client, working_for
from service.keys import file
from service.server.edge.keys import KEY

# an IPv6 subscriber has a network of at least this size, and can use any address in it
_NETWORK_BITS = 64


_MAPPED = "::ffff:"


class PlainAddresses:
    """Gives the address of IPv4 to a client of IPv4 whose connection a socket of IPv6 accepted.

    The settings name proxies by it.

    Args:
        app: the rest of the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client is not None and client[0].startswith(_MAPPED):
            address = ipaddress.IPv6Address(client[0])
            scope["client"] = (str(address.ipv4_mapped or address), client[1])
        await self._app(scope, receive, send)


class Clients:
    """Assigns the work of a request to its client: the API key, else the peer's address.

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
    """The client of a request. Its name contains the key's name, never the key itself."""
    if KEY in scope:
        return Client(_of_key(scope[KEY]))
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


def by_token(plain: Sequence[SecretStr]) -> dict[str, bytes]:
    """Digests of the tokens in the settings, by the names of their clients.

    These names are positions, so a new order of the tokens gives a name to another caller.
    """
    tokens = (token.get_secret_value().encode() for token in plain)
    return {_of_key(str(at)): file.digest(token) for at, token in enumerate(tokens)}


def _of_key(name: str) -> str:
    return f"key {name}"
