"""The signalling of Pipecat's SmallWebRTC transport (pipecat-ai 1.14): offers as JSON, sessions that `/start` makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from relay.api.bodies import MAX_JSON_BYTES, parse_json, parse_model
from relay.entrance.authentication import find_origin, read_bearer
from relay.entrance.visitors import Visitor
from relay.errors import InvalidRequest, UnknownObject
from relay.native.messages import MAX_TEXT
from relay.webrtc.offers import MAX_BYTES, MAX_CANDIDATES, is_useful
from relay.webrtc.requests import Desk, read_text
from relay.webrtc.tickets import Tickets
from relay.webrtc.trickle import Trickled

_JSON = "application/json"
_MAX_OFFER_BYTES = MAX_BYTES + MAX_JSON_BYTES


class _Asked(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Offer(_Asked):
    """`POST /api/offer`."""

    sdp: str
    type: Literal["offer"]
    pc_id: Annotated[str, Field(max_length=64)] | None = None
    restart_pc: bool | None = None
    request_data: Any = Field(default=None, validation_alias=AliasChoices("request_data", "requestData"))


class Candidate(_Asked):
    """One of a `PATCH`; an empty text says that there are no more."""

    candidate: Annotated[str, Field(max_length=1024)]
    sdp_mid: Annotated[str, Field(max_length=64)] | None = None
    sdp_mline_index: Annotated[int, Field(ge=0, le=64)] | None = None


class Candidates(_Asked):
    """`PATCH /api/offer`."""

    pc_id: Annotated[str, Field(max_length=64)]
    candidates: Annotated[list[Candidate], Field(max_length=MAX_CANDIDATES)] = []


class Start(_Asked):
    """`POST /start`."""

    transport: Literal["webrtc"] = "webrtc"
    body: dict[str, Any] = {}


class SpokenWish(_Asked):
    """What we read of `request_data`, or of the body of `/start`."""

    voice: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    text: str | None = None


class SmallWebRtc:
    """The handlers; under `/sessions/{session}` the session stands for the key."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tickets = Tickets()

    async def start(self, request: Request) -> Response:
        """A session, and the ICE servers that its client may use."""
        _, key = await self._desk.admit(request)
        asked = parse_model(Start, parse_json((await read_text(request, _JSON, MAX_JSON_BYTES)).encode()))
        _read_wish(asked.body)
        session = self._tickets.issue(key, asked.body, self._desk.reception.clock.monotonic())
        servers = [server.as_dict() for server in (await self._desk.peers()).lend_servers()]
        return JSONResponse({"sessionId": session, **({"iceConfig": {"iceServers": servers}} if servers else {})})

    async def offer(self, request: Request) -> Response:
        """An answer: of a new peer, or of the one that `pc_id` names and whose media change."""
        visitor, key, body = await self._admit(request)
        asked = parse_model(Offer, parse_json((await read_text(request, _JSON, _MAX_OFFER_BYTES)).encode()))
        wish = _read_wish(asked.request_data or body)
        peers = await self._desk.peers()
        try:
            seat = None if asked.pc_id is None else peers.find(asked.pc_id, visitor.tenant)
        except UnknownObject:
            seat = None
        if seat is not None and not asked.restart_pc:
            return _answer(await seat.peer.link.answer(asked.sdp), seat.name)
        await self._desk.check_voice(visitor, wish.voice)
        if seat is not None:
            peers.dismiss(seat, replaced=True)
        made, answer = await peers.connect(visitor, key, asked.sdp, voice=wish.voice, text=wish.text)
        return _answer(answer, made.name)

    async def trickle(self, request: Request) -> Response:
        """Try candidates that the client has found since."""
        visitor, _, _ = await self._admit(request)
        asked = parse_model(Candidates, parse_json((await read_text(request, _JSON, MAX_JSON_BYTES)).encode()))
        seat = (await self._desk.peers()).find(asked.pc_id, visitor.tenant)
        useful = [
            Trickled(c.candidate, c.sdp_mid, c.sdp_mline_index) for c in asked.candidates if is_useful(c.candidate)
        ]
        if any(trickled.mid is None and trickled.index is None for trickled in useful):
            raise InvalidRequest("a candidate needs `sdp_mid` or `sdp_mline_index`", field="candidates")
        await seat.peer.link.trickle(useful, complete=any(not c.candidate for c in asked.candidates))
        return JSONResponse({"status": "success"})

    async def _admit(self, request: Request) -> tuple[Visitor, str, Mapping[str, Any]]:
        session = request.path_params.get("session")
        if session is None:
            return (*await self._desk.admit(request), {})
        ticket = self._tickets.use(session, self._desk.reception.clock.monotonic())
        key = read_bearer(request) or ticket.key.get_secret_value()
        return await self._desk.reception.admit(key, find_origin(request)), key, ticket.body


def _answer(sdp: str, name: str) -> Response:
    return JSONResponse({"sdp": sdp, "type": "answer", "pc_id": name}, headers={"Cache-Control": "no-store"})


def _read_wish(data: object) -> SpokenWish:
    wish = parse_model(SpokenWish, data) if isinstance(data, dict) else SpokenWish()
    if wish.text is not None and wish.voice is None:
        raise InvalidRequest("`text` needs a `voice` to be spoken in", field="voice")
    if wish.text is not None and len(wish.text) > MAX_TEXT:
        raise InvalidRequest(f"`text` has at most {MAX_TEXT:,} characters here; send more as messages", field="text")
    return wish
