"""A client of the native protocol: voices over HTTP, speech over a WebSocket.

async with Client(base_url, key) as client, client.connect() as connection:
    context = await connection.open(voice)
    await context.send("Good morning.")
    await context.end()
    async for event in context:
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus

from timbrelay.connection import Connection, ConnectionLost, Context
from timbrelay.errors import OpsError
from timbrelay.events import (
    Cancelled,
    Chunk,
    Done,
    Flushed,
    Hello,
    ProtocolFault,
    RelayError,
    Sentence,
    SentenceEnd,
    parse_error,
    parse_message,
)

__all__ = [
    "Cancelled",
    "Chunk",
    "Client",
    "Connection",
    "ConnectionLost",
    "Consent",
    "Context",
    "Done",
    "Flushed",
    "RelayError",
    "RelayUnreachable",
    "Sentence",
    "SentenceEnd",
    "Voice",
    "VoiceFailed",
]

_REQUEST_TIMEOUT_S = 60.0
_WAIT_S = 20
_PAGE = 100
MAX_LISTED = 10_000
_MAX_MESSAGE_BYTES = 1024 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class RelayUnreachable(OpsError):
    """Raised when no relay answers at the address."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"No relay answers at {url}: {reason}. Start one with `./dev up`.")
        self.url = url


class VoiceFailed(OpsError):
    """Raised when a voice could not be made, or not in time. `code` is the relay's, or `timeout`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Consent:
    """A person's recorded permission."""

    id: str
    state: str
    granted_at: str


@dataclass(frozen=True, slots=True)
class Voice:
    """An enrolled speaker; `state` is one of docs/api.md, `error` says why the newest recording failed."""

    id: str
    name: str
    state: str
    version: int = 0
    error: dict[str, Any] | None = None


class Client:
    """One tenant's way to one relay. `key` is the API key, `base_url` like `http://127.0.0.1:8080`."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A proxy that the user has set for the world cannot reach this machine's own loopback address.
        self._local = urlsplit(base_url).hostname in _LOOPBACK
        self._http = httpx2.AsyncClient(
            base_url=self._base_url, headers=self._headers, timeout=_REQUEST_TIMEOUT_S, trust_env=not self._local
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the HTTP connections."""
        await self._http.aclose()

    async def create_consent(
        self, signer: str, statement: str, *, version: str = "unversioned", purpose: str = "voice cloning"
    ) -> Consent:
        """Records a person's permission, in English; a voice cannot be made without one."""
        fields = {"signer": signer, "statement": statement, "statement_version": version, "language": "en"}
        body = await self._request("POST", "/v1/consents", json={**fields, "purpose": purpose})
        return Consent(**{name: body[name] for name in Consent.__slots__})

    async def enroll(self, name: str, consent: str, recording: bytes, filename: str = "recording.wav") -> Voice:
        """Uploads a recording (WAV, FLAC, OGG or MP3); the voice is `pending` at first, see `wait_ready`."""
        files = {"recording": (filename, recording, "application/octet-stream")}
        fields = {"name": name, "consent": consent}
        return _voice(await self._request("POST", "/v1/voices", data=fields, files=files))

    async def voice(self, voice_id: str, wait_s: int = 0) -> Voice:
        """The voice as it is, or after up to `wait_s` seconds of waiting while it is pending."""
        return _voice(await self._request("GET", f"/v1/voices/{voice_id}", params={"wait": wait_s}))

    async def wait_ready(self, voice_id: str, timeout_s: float = 60.0) -> Voice:
        """The voice when it is ready. Raises VoiceFailed when it is not going to be."""
        end = time.monotonic() + timeout_s
        while True:
            voice = await self.voice(voice_id, min(_WAIT_S, max(int(end - time.monotonic()), 1)))
            if voice.state == "ready":
                return voice
            if voice.state != "pending":
                error = voice.error or {"code": voice.state, "message": f"The voice is {voice.state}."}
                raise VoiceFailed(error["code"], error["message"])
            if time.monotonic() > end:
                raise VoiceFailed("timeout", f"The voice was not ready within {timeout_s:.0f} s; is Celery running?")

    async def voices(self, **filters: str) -> list[Voice]:
        """The tenant's voices, newest first, at most MAX_LISTED; of a `name` or in a `state` only, if asked for."""
        found: list[Voice] = []
        cursor: str | None = ""
        while cursor is not None and len(found) < MAX_LISTED:
            query = {**filters, "limit": _PAGE, "cursor": cursor}
            page = await self._request("GET", "/v1/voices", params=query)
            found += [_voice(body) for body in page["voices"]]
            cursor = page["next_cursor"]
        return found

    async def delete_voice(self, voice_id: str) -> None:
        """Deletes a voice for good; what is left to do goes on by itself."""
        await self._request("DELETE", f"/v1/voices/{voice_id}")

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """A connection for speech. Raises RelayError for a refused key, RelayUnreachable when nothing answers."""
        async with self._socket() as socket:
            message = await socket.recv()
            hello = parse_message(message) if isinstance(message, str) else None
            if not isinstance(hello, Hello):
                raise ProtocolFault("The relay did not begin with its greeting.")
            connection = Connection(socket, hello)
            reader = asyncio.create_task(connection.read())
            try:
                yield connection
            finally:
                reader.cancel()
                await asyncio.wait({reader})

    @contextlib.asynccontextmanager
    async def _socket(self) -> AsyncIterator[ClientConnection]:
        url = "ws" + self._base_url.removeprefix("http") + "/v1/stream"
        proxy: Literal[True] | None = None if self._local else True
        connecting = connect(
            url, additional_headers=self._headers, max_size=_MAX_MESSAGE_BYTES, compression=None, proxy=proxy
        )
        try:
            socket = await connecting
        except InvalidStatus as error:
            raise _refusal(error.response.status_code, error.response.body) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise RelayUnreachable(self._base_url, str(error) or "no answer in time") from error
        try:
            yield socket
        finally:
            await socket.close()

    async def _request(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, **content)
        except httpx2.TransportError as error:
            raise RelayUnreachable(self._base_url, str(error) or type(error).__name__) from error
        if response.is_error:
            raise _refusal(response.status_code, response.content)
        body: dict[str, Any] = response.json()
        return body


def _voice(body: dict[str, Any]) -> Voice:
    error = (body.get("enrolment") or {}).get("error")
    return Voice(body["id"], body["name"], body["state"], body["version"], error)


def _refusal(status: int, content: bytes | bytearray | None) -> RelayError:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        problem = json.loads(content or b"")
        return parse_error({**problem, "message": problem["detail"]})
    if status == httpx2.codes.UNAUTHORIZED:
        return RelayError("unauthorized", "The key is missing or unknown; set TIMBRELAY_API_KEY.")
    return RelayError("http_error", f"The relay answered with HTTP {status}.", retryable=status >= 500)
