"""Who asks, from where, and whether their key may: the door of every route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from relay.entrance.authentication import authenticate, find_origin
from relay.entrance.rate_limits import Rate
from relay.errors import RequestRefused
from storage.evidence.audit import Act, Scalar
from storage.states import TenantState
from storage.tenancy.api_keys import Caller, Scope

_ORDER = tuple(Scope)
_WHILE_DELETING = ("GET", "DELETE")
"""What a tenant's administrator may do to the end: look on, and end more of it."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody whose key was let in."""

    caller: Caller
    origin: str

    @property
    def tenant(self) -> UUID:
        """Whose rows there are for this visit; a door that admits operators has none."""
        if self.caller.tenant is None:
            raise RequestRefused(403, "insufficient_scope", "an operator's key opens no tenant's door")
        return self.caller.tenant

    @property
    def actor(self) -> str:
        """The one who acts, as the audit log names them."""
        return f"{'operator' if self.caller.tenant is None else 'key'}:{self.caller.key_id}"

    def act(self, action: str, object_id: UUID | str, **detail: Scalar | Sequence[Scalar]) -> Act:
        """What was done, for the record; the action's first word is the object's kind."""
        return Act(self.actor, action, action.partition(".")[0], str(object_id), self.origin, detail)


@dataclass(frozen=True, slots=True)
class Door:
    """Lets in whose key has one of the scopes."""

    scopes: frozenset[Scope]
    rate: Rate = Rate.REQUEST

    async def __call__(self, request: Request) -> None:
        """Raises Unauthorized, Refused, ServiceUnavailable or RequestRefused (403)."""
        services = request.app.state.services
        caller = await authenticate(request, services.database, services.limiter, self.rate)
        if not caller.scopes & self.scopes:
            wanted = " or ".join(f"`{scope}`" for scope in _ORDER if scope in self.scopes)
            raise RequestRefused(
                403, "insufficient_scope", f"this needs a key with the scope {wanted}", field="Authorization"
            )
        if caller.tenant_state is TenantState.DELETING and request.method not in _WHILE_DELETING:
            raise RequestRefused(409, "wrong_state", "the tenant is being deleted; nothing of it is made or changed")
        request.state.visit = Visit(caller, find_origin(request))


def _find_visit(request: Request) -> Visit:
    visit: Visit = request.state.visit
    return visit


Visitor = Annotated[Visit, Depends(_find_visit)]
"""A handler's parameter: the visit that the route's door let in."""
