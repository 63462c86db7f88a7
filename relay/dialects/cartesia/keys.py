"""Where Cartesia's clients put their key: in one of two headers, or, as browsers must, in a WebSocket's address."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request

from relay.api.services import Services
from relay.api.visits import Visit, enter
from relay.entrance.authentication import find_origin, read_bearer
from storage.tenancy.api_keys import Deed, Scope

HEADER = "X-API-Key"
_IN_ADDRESS = ("access_token", "api_key")


def find_key(connection: HTTPConnection) -> str:
    """The key that a connection shows; empty when it shows none."""
    shown = connection.headers.get(HEADER, "").strip() or read_bearer(connection)
    if shown or connection.scope["type"] != "websocket":
        return shown
    return next((key for name in _IN_ADDRESS if (key := connection.query_params.get(name))), "")


async def let_in(services: Services, request: Request, scopes: frozenset[Scope], deed: Deed) -> Visit:
    """Who asks; raises what `enter` raises."""
    return await enter(services, find_key(request), find_origin(request), scopes=scopes, deed=deed)
