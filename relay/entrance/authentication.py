"""From a key to a caller; there is no way in without one."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from relay.entrance.rate_limits import Rate, RateLimiter, name_address
from relay.errors import ServiceUnavailable, Unauthorized
from storage.database import Database, bounded
from storage.errors import ServerUnavailable
from storage.tenancy import api_keys
from storage.tenancy.api_keys import Caller, hash_key

_SCHEME = "bearer "


async def authenticate(
    key: str, origin: str, database: Database, limiter: RateLimiter, kind: Rate = Rate.REQUEST
) -> Caller:
    """Whose key it is, counted against their rate; `origin` is where it comes from.

    Where too many wrong keys came from, only those that are known still open; who brings none has tried none out.
    Raises Unauthorized, Refused when too much is asked, or ServiceUnavailable when the keys cannot be looked up.
    """
    if not key:
        raise Unauthorized
    hashed, known = hash_key(key), limiter.known
    if not known.knows(hashed):
        await limiter.check_address(origin)
    asked_at = known.clock()
    try:
        caller = await bounded(api_keys.authenticate(database, key))
    except ServerUnavailable as error:
        raise ServiceUnavailable from error
    if caller is None:
        known.forget(hashed)
        await limiter.note_failure(origin)
        raise Unauthorized
    known.remember(hashed, caller, asked_at)
    await limiter.check(caller, kind)
    return caller


def find_origin(request: HTTPConnection) -> str:
    """The address that a request came from, as far as the relay can see; a proxy may hand on what is none."""
    return name_address(request.client.host if request.client else None)


def read_bearer(request: HTTPConnection) -> str:
    """The key that a request carries (RFC 6750, "Authorization Request Header Field"); empty when it carries none."""
    header = request.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else ""
