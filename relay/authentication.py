"""From an Authorization header to a tenant; there is no way in without one."""

from __future__ import annotations

from uuid import UUID

from starlette.requests import HTTPConnection

from relay.errors import ServiceUnavailable, Unauthorized
from storage.database import Database, bounded
from storage.errors import ServerUnavailable
from storage.tenancy.tenants import find_tenant

_SCHEME = "bearer "


async def authenticate(request: HTTPConnection, database: Database) -> UUID:
    """The tenant whose key the request carries (RFC 6750, "Authorization Request Header Field").

    Raises Unauthorized, or ServiceUnavailable when the keys cannot be looked up.
    """
    header = request.headers.get("authorization", "")
    if not header.lower().startswith(_SCHEME):
        raise Unauthorized
    try:
        tenant = await bounded(find_tenant(database, header[len(_SCHEME) :].strip()))
    except ServerUnavailable as error:
        raise ServiceUnavailable from error
    if tenant is None:
        raise Unauthorized
    return tenant
