"""WHEP (draft-ietf-wish-whep, after RFC 9725): the client offers to hear, the relay answers with its voice."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from relay.api.bodies import MAX_JSON_BYTES
from relay.entrance.authentication import read_bearer
from relay.errors import InvalidMessage, InvalidRequest, RequestRefused
from relay.native.messages import MAX_TEXT
from relay.webrtc import offers, trickle
from relay.webrtc.ice_servers import to_links
from relay.webrtc.requests import Desk, read_text

ENDPOINT = "/v1/whep"
SDP = "application/sdp"
_MAX_VOICE = 64
_UNKEPT = {"Cache-Control": "no-store"}


class Whep:
    """The handlers of the endpoint and of the sessions that it makes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def show_options(self, request: Request) -> Response:
        """What the endpoint takes; who has a key is told of the ICE servers before there is an offer."""
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers={"Accept-Post": SDP, "Allow": "POST, OPTIONS"})
        if read_bearer(request):
            await self._desk.admit(request)
            self._link(response, to_links((await self._desk.peers()).lend_servers()))
        return response

    async def connect(self, request: Request) -> Response:
        """Make a session of an offer."""
        visitor, key = await self._desk.admit(request)
        voice, text = _read_wishes(request)
        offer = await read_text(request, SDP, offers.MAX_BYTES)
        await self._desk.check_voice(visitor, voice)
        peers = await self._desk.peers()
        seat, answer = await peers.connect(visitor, key, offer, voice=voice, text=text)
        headers = {"Location": f"{ENDPOINT}/{seat.name}", "ETag": seat.tag, "Accept-Patch": trickle.MEDIA_TYPE}
        response = Response(answer, HTTPStatus.CREATED, {**headers, **_UNKEPT}, SDP)
        self._link(response, to_links(seat.servers))
        return response

    async def trickle(self, request: Request) -> Response:
        """Try candidates that the client has found since (RFC 9725, section 4.3.2)."""
        visitor, _ = await self._desk.admit(request)
        seat = (await self._desk.peers()).find(request.path_params["session"], visitor.tenant)
        wanted = request.headers.get("if-match")
        text = await read_text(request, trickle.MEDIA_TYPE, trickle.MAX_BYTES)
        if wanted is None:
            message = "send the session's ETag in `If-Match`, so that a fragment meets the ICE session that it is for"
            raise RequestRefused(428, "precondition_required", message, field="If-Match")
        if wanted not in (seat.tag, "*"):
            raise RequestRefused(412, "precondition_failed", "the ICE session is another one", field="If-Match")
        fragment = trickle.read_fragment(text)
        if not seat.peer.link.knows(fragment.ufrag):
            raise InvalidRequest("ICE cannot be restarted here; make another session", field="sdpfrag")
        await seat.peer.link.trickle(fragment.candidates, complete=fragment.complete)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def say(self, request: Request) -> Response:
        """Take one message of the protocol for a client that has no data channel."""
        visitor, _ = await self._desk.admit(request)
        seat = (await self._desk.peers()).find(request.path_params["session"], visitor.tenant)
        text = await read_text(request, "application/json", MAX_JSON_BYTES)
        try:
            seat.peer.hear(text)
        except InvalidMessage as error:
            raise InvalidRequest(error.message, field=error.field) from error
        return Response(status_code=HTTPStatus.ACCEPTED, headers=_UNKEPT)

    async def leave(self, request: Request) -> Response:
        """End the session."""
        visitor, _ = await self._desk.admit(request)
        peers = await self._desk.peers()
        peers.dismiss(peers.find(request.path_params["session"], visitor.tenant))
        return Response(status_code=HTTPStatus.OK)

    def _link(self, response: Response, links: list[str]) -> None:
        for link in links:
            response.headers.append("Link", link)


def _read_wishes(request: Request) -> tuple[str | None, str | None]:
    voice, text = (request.query_params.get(name) for name in ("voice", "text"))
    if voice is not None and not 0 < len(voice) <= _MAX_VOICE:
        raise InvalidRequest("`voice` must be a voice's id or alias", field="voice")
    if text is not None and voice is None:
        raise InvalidRequest("`text` needs a `voice` to be spoken in", field="voice")
    if text is not None and len(text) > MAX_TEXT:
        raise InvalidRequest(f"`text` has at most {MAX_TEXT:,} characters here; send more as messages", field="text")
    return voice, text
