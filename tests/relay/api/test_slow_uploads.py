"""Uploads that take their time: a tenant's own patience is tried by them, and nobody else's."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from httpx2 import Response

from relay.api.uploads import MAX_TENANT_UPLOADS, MAX_UPLOADS
from tests.conftest import RunningStack, Tenant
from tests.relay.api.conftest import CONSENT, RECORDING, Http, check_problem

_HEAD = (
    "POST /v1/voices HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {key}\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 5000\r\n\r\n"
    '--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nslow\r\n--x\r\n'
)


async def _begin(life: AsyncExitStack, stack: RunningStack, tenant: Tenant) -> asyncio.StreamReader:
    """An upload that does not come to its end."""
    address = urlsplit(stack.relay_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    life.callback(writer.close)
    writer.write(_HEAD.format(key=tenant.key).encode())
    await writer.drain()
    return reader


async def test_one_tenants_slow_uploads_leave_room_for_the_others(
    stack: RunningStack, acme: Tenant, http: Http, stranger: Http
) -> None:
    """Half the places are taken by a tenant that begins as many as there are; another one's recording is taken."""
    refused = MAX_UPLOADS - MAX_TENANT_UPLOADS
    async with AsyncExitStack() as life:
        begun = [await _begin(life, stack, acme) for _ in range(MAX_UPLOADS)]
        answers = [asyncio.create_task(reader.readline()) for reader in begun]
        for answer in itertools.islice(asyncio.as_completed(answers, timeout=20), refused):
            assert (await answer).startswith(b"HTTP/1.1 429 ")
        check_problem(await _post(http), 429, "overloaded")
        assert (await _post(stranger)).status_code == 201
        assert sum(answer.done() for answer in answers) == refused
    for _ in range(10):
        if (after := await _post(http)).status_code == 201:
            break
        await asyncio.sleep(0.5)
    assert after.status_code == 201


async def _post(client: Http) -> Response:
    return await client.post("/v1/consents", data=CONSENT, files={"recording": RECORDING})
