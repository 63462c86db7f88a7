"""Speech for a request whose client may be gone before there is anything to hear."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from relay.cancellation import end
from relay.doors.reception import Reception
from relay.doors.utterance import Utterance
from relay.entrance.visitors import Visitor
from relay.errors import RequestRefused


async def utter_while_there(
    reception: Reception, visitor: Visitor, request: Request, voice: str, text: str, *, speed: float = 1.0
) -> Utterance:
    """What `Reception.utter` gives and raises; nothing goes on being computed for a client that hangs up meanwhile.

    The request's body has to be read. Raises RequestRefused, for nobody to read, when the client is gone.
    """
    uttering = asyncio.create_task(reception.utter(visitor, voice, text, speed=speed))
    leaving = asyncio.create_task(_wait_until_gone(request))
    try:
        await asyncio.wait({uttering, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end([leaving] if uttering.done() else [uttering, leaving])
    if not uttering.cancelled():
        # It may have come about in spite of its cancellation; then the answer finds out, and closes it.
        return uttering.result()
    raise RequestRefused(408, "request_timeout", "the client did not wait")


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
