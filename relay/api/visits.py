"""Who asks, from where, and whether their key may: the door of every route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from relay.api.services import Services
from relay.entrance.authentication import authenticate, find_origin, read_bearer
from relay.entrance.permits import check_permitted
from relay.entrance.rate_limits import Rate
from relay.errors import RequestRefused
from storage.evidence.audit import Act, Scalar
from storage.tenancy.api_keys import Caller, Deed, Scope

_ORDER = tuple(Scope)
_DEEDS: Mapping[str, Deed] = {"GET": Deed.READ, "DELETE": Deed.REMOVE}
"""What a method does where the route says nothing else; all others change something."""


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
    deed: Deed | None = None
    """What the route does, where its method does not tell."""

    async def __call__(self, request: Request) -> None:
        """Raises Unauthorized, Refused, ServiceUnavailable or RequestRefused (403, 409)."""
        deed = self.deed or _DEEDS.get(request.method, Deed.CHANGE)
        request.state.visit = await enter(
            request.app.state.services,
            read_bearer(request),
            find_origin(request),
            scopes=self.scopes,
            deed=deed,
            rate=self.rate,
        )


async def enter(
    services: Services, key: str, origin: str, *, scopes: frozenset[Scope], deed: Deed, rate: Rate = Rate.REQUEST
) -> Visit:
    """A visit with this key, which needs one of the scopes.

    Raises Unauthorized, Refused, ServiceUnavailable or RequestRefused (403, 409).
    """
    caller = await authenticate(key, origin, services.database, services.limiter, rate)
    if not caller.scopes & scopes:
        wanted = " or ".join(f"`{scope}`" for scope in _ORDER if scope in scopes)
        raise RequestRefused(
            403, "insufficient_scope", f"this needs a key with the scope {wanted}", field="Authorization"
        )
    check_permitted(caller, deed)
    return Visit(caller, origin)


def _find_visit(request: Request) -> Visit:
    visit: Visit = request.state.visit
    return visit


Visitor = Annotated[Visit, Depends(_find_visit)]
"""A handler's parameter: the visit that the route's door let in."""
