"""An answer over HTTP whose body comes while it is spoken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relay import metrics
from relay.cancellation import end
from relay.doors.utterance import Utterance
from relay.errors import RelayError

log = structlog.get_logger()

_NEVER_STORED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""nginx buffers what is proxied unless it is told not to (nginx, "proxy_buffering")."""


class BrokenTransfer(Exception):
    """Raised into the server so that it breaks the connection off: the client sees that the audio is not whole."""


def is_news(record: logging.LogRecord) -> bool:
    """A filter for the server's log: a transfer that was broken off on purpose has been told of already."""
    return record.exc_info is None or not isinstance(record.exc_info[1], BrokenTransfer)


class StreamedAnswer(Response):
    """Sends `pieces` as they come and closes the utterance in every case; ends when the client is gone or slow."""

    def __init__(
        self,
        utterance: Utterance,
        pieces: AsyncIterator[bytes],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self._utterance = utterance
        self._pieces = pieces
        self.init_headers({**_NEVER_STORED, **(headers or {})})
        # Its length is not known before it was spoken.
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises BrokenTransfer when the speech fails after it has begun."""
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_wait_until_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await end([sending, leaving])
            await self._utterance.close()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        try:
            async with asyncio.timeout(self._utterance.send_timeout_s):
                await send(start)
            async for piece in self._pieces:
                async with asyncio.timeout(self._utterance.send_timeout_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except RelayError as error:
            metrics.ERRORS.labels(error.code).inc()
            log.warning("speech over HTTP broke off", code=error.code)
            raise BrokenTransfer from error
        except TimeoutError as error:
            log.info("speech over HTTP was not read")
            raise BrokenTransfer from error
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
