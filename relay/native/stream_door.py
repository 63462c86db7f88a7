"""The door of the native protocol: who may speak is let through to a connection, everyone else is told why not."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.websockets import WebSocket

from relay.api.problems import answer_problem
from relay.clock import SystemClock
from relay.entrance.authentication import authenticate, find_origin
from relay.entrance.gate import Gate
from relay.entrance.permits import check_permitted
from relay.entrance.visitors import Visitor
from relay.errors import RelayError, RequestRefused
from relay.native.websocket import Connection, Limits
from relay.speaking.hub import Hub
from storage.database import Database
from storage.tenancy.api_keys import Caller, Deed, Scope


@dataclass(frozen=True, slots=True)
class StreamDoor:
    """The WebSocket at /v1/stream."""

    hub: Hub
    database: Database
    gate: Gate
    limits: Limits

    async def __call__(self, socket: WebSocket) -> None:
        """Refuse before the upgrade, or serve the connection to its end."""
        clock = SystemClock()
        came_at = clock.monotonic()
        try:
            caller = await authenticate(socket, self.database, self.gate.limiter)
            visitor = _admit(caller, find_origin(socket), came_at)
        except RelayError as error:
            await socket.send_denial_response(answer_problem(error))
            return
        await self.gate.quotas.learn(visitor.tenant)
        await socket.accept()
        await Connection(socket, visitor, self.hub, self.gate, clock, self.limits).run()


def _admit(caller: Caller, origin: str, came_at: float) -> Visitor:
    if caller.tenant is None or Scope.SPEAK not in caller.scopes:
        text = "speech needs a tenant's key with the scope `speak`"
        raise RequestRefused(403, "insufficient_scope", text, field="Authorization")
    check_permitted(caller, Deed.SPEAK)
    return Visitor(caller.tenant, caller.key_id, caller.expires_at, caller.limits, origin, came_at)
