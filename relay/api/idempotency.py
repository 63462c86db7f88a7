"""The header `Idempotency-Key` (IETF draft-ietf-httpapi-idempotency-key-header): the same request is done once.

Of a request that was done the answer is kept; of one that failed nothing is, so that it may be tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from relay.api.services import Services
from relay.errors import RelayError, RequestRefused
from storage.errors import ServerUnavailable, StorageError
from storage.tenancy.idempotency import Begun, Finished, abandon, begin, finish

REPLAYED = "Idempotency-Replayed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request has made."""

    body: BaseModel
    location: str
    status: int = 201
    kept: BaseModel | None = None
    """What a replay shows instead of `body`, where that holds what is shown once."""


Making = Callable[[AsyncConnection, UUID], Awaitable[Outcome]]
"""Makes an object with this id, within a transaction that also keeps the answer."""


@dataclass(frozen=True, slots=True)
class Done:
    """What has come of a request, now or when it came first."""

    status: int
    content: dict[str, Any]
    location: str
    fresh: bool

    def answer(self) -> Response:
        """As it was answered the first time; a header says if this is not that."""
        headers = {"Cache-Control": "no-store", "Location": self.location}
        if not self.fresh:
            headers[REPLAYED] = "true"
        return JSONResponse(self.content, status_code=self.status, headers=headers)


@dataclass(frozen=True, slots=True)
class Once:
    """A request that makes something of a tenant's; `digest` is what its body holds, however it is written.

    It may take a while, of a recording, so it is asked for in a thread, and only where there is a key.
    """

    services: Services
    tenant: UUID
    request: Request
    key: str | None
    digest: Callable[[], bytes]

    async def do(self, make: Making) -> Done:
        """Make it, or find what was made; raises RequestRefused when the key belongs to another request (422), when the
        first one is under way (409), or when what it made is deleted (410)."""
        if self.key is None:
            return _done(await self.services.within(self.tenant, lambda connection: make(connection, uuid4())))
        begun = await self._begin(self.key)
        if isinstance(begun, Finished):
            return _replay(begun)
        try:
            return _done(await self._finish(self.key, make, begun.object_id))
        except (RelayError, StorageError) as error:
            # What is not known to have failed may still be done: then its key is held until that has ended.
            if not isinstance(error, ServerUnavailable):
                await self._abandon(self.key)
            raise

    async def _begin(self, key: str) -> Begun | Finished:
        named = f"{self.request.method} {self.request.url.path}\0".encode("utf-8", "surrogatepass")
        fingerprint = hashlib.sha256(named + await asyncio.to_thread(self.digest)).digest()
        return await self.services.within(
            self.tenant,
            lambda connection: begin(connection, self.services.keyring, self.tenant, key, fingerprint),
        )

    async def _finish(self, key: str, make: Making, object_id: UUID) -> Outcome:
        async def work(connection: AsyncConnection) -> Outcome:
            outcome = await make(connection, object_id)
            kept = {"location": outcome.location, "body": _plain(outcome.kept or outcome.body)}
            await finish(connection, self.tenant, key, outcome.status, kept)
            return outcome

        return await self.services.within(self.tenant, work)

    async def _abandon(self, key: str) -> None:
        with suppress(ServerUnavailable):
            await self.services.within(self.tenant, lambda connection: abandon(connection, self.tenant, key))


def digest_of(body: BaseModel, recording: bytes | None = None) -> bytes:
    """What a body holds, whatever the order and white space that it came in."""
    return hashlib.sha256(body.model_dump_json().encode() + hashlib.sha256(recording or b"").digest()).digest()


def _plain(body: BaseModel) -> dict[str, Any]:
    return body.model_dump(mode="json")


def _done(outcome: Outcome) -> Done:
    return Done(outcome.status, _plain(outcome.body), outcome.location, fresh=True)


def _replay(finished: Finished) -> Done:
    if finished.response is None:
        raise RequestRefused(
            410, "gone", "what this idempotency key has made is deleted; use another key", field="Idempotency-Key"
        )
    return Done(finished.status, finished.response["body"], finished.response["location"], fresh=False)
