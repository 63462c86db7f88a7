"""Where clients of this dialect put their API key."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from relay.dialects.elevenlabs.messages import strip_scheme
from relay.entrance.authentication import read_bearer
from relay.errors import RequestRefused

HEADER = "xi-api-key"
QUERY = "authorization"


def find_key(connection: HTTPConnection) -> str:
    """The key of the header `xi-api-key`, of a bearer's, or of the query `authorization`; empty where there is none."""
    return (
        connection.headers.get(HEADER, "").strip()
        or read_bearer(connection)
        or strip_scheme(connection.query_params.get(QUERY, ""))
    )


def need_key(connection: HTTPConnection) -> str:
    """The same where nothing else can bring one; raises RequestRefused."""
    key = find_key(connection)
    if not key:
        raise missing_key()
    return key


def missing_key() -> RequestRefused:
    """The refusal of whoever has brought no key."""
    return RequestRefused(401, "needs_authorization", f"send your API key in the header `{HEADER}`", field=HEADER)
