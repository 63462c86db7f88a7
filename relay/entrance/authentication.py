"""From an Authorization header to a caller; there is no way in without one."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from relay.entrance.rate_limits import Rate, RateLimiter, name_address
from relay.errors import ServiceUnavailable, Unauthorized
from storage.database import Database, bounded
from storage.errors import ServerUnavailable
from storage.tenancy import api_keys
from storage.tenancy.api_keys import Caller

_SCHEME = "bearer "


async def authenticate(
    request: HTTPConnection, database: Database, limiter: RateLimiter, kind: Rate = Rate.REQUEST
) -> Caller:
    """Whose key the request carries (RFC 6750, "Authorization Request Header Field"), counted against their rate.

    Raises Unauthorized, Refused when too much is asked, or ServiceUnavailable when the keys cannot be looked up.
    """
    origin = find_origin(request)
    await limiter.check_address(origin)
    header = request.headers.get("authorization", "")
    try:
        caller = await _look_up(database, header)
    except ServerUnavailable as error:
        raise ServiceUnavailable from error
    if caller is None:
        await limiter.note_failure(origin)
        raise Unauthorized
    await limiter.check(caller, kind)
    return caller


def find_origin(request: HTTPConnection) -> str:
    """The address that a request came from, as far as the relay can see; a proxy may hand on what is none."""
    return name_address(request.client.host if request.client else None)


async def _look_up(database: Database, header: str) -> Caller | None:
    if not header.lower().startswith(_SCHEME):
        return None
    return await bounded(api_keys.authenticate(database, header[len(_SCHEME) :].strip()))
