"""All WebRTC peers of a relay process: how many there may be, and who finds which."""

from __future__ import annotations

import asyncio
import math
import secrets
from dataclasses import dataclass
from uuid import UUID

from pydantic import SecretStr

from relay.api.services import Services
from relay.doors.reception import Reception
from relay.entrance.visitors import Visitor
from relay.errors import Refused, UnknownObject
from relay.webrtc import metrics
from relay.webrtc.enrolment import Enrolment
from relay.webrtc.floor import Floor
from relay.webrtc.ice_servers import IceServer
from relay.webrtc.life import Ending
from relay.webrtc.memory import Giver, set_aside
from relay.webrtc.peer import Peer, Wishes
from relay.webrtc.terms import WebrtcTerms

_FULL_MS = 5000


@dataclass(frozen=True, slots=True)
class Seat:
    """A peer, and the names that signalling knows it by."""

    name: str
    """Not to be guessed."""
    tag: str
    """The entity tag of its ICE session."""
    tenant: UUID
    peer: Peer
    servers: list[IceServer]
    """As its client may use them."""


class Peers:
    """One a process."""

    def __init__(self, services: Services, reception: Reception, terms: WebrtcTerms) -> None:
        self._services = services
        self._reception = reception
        self._terms = terms
        self._seats: dict[str, Seat] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._giver = Giver()
        set_aside()

    def __len__(self) -> int:
        return len(self._seats)

    async def connect(
        self, visitor: Visitor, key: str, offer: str, *, voice: str | None, text: str | None
    ) -> tuple[Seat, str]:
        """A peer for an offer, and the answer; raises Refused when there are too many, or InvalidRequest."""
        self._check_room(visitor.tenant)
        seat = self._seat(visitor, key, Wishes(voice, text))
        self._seats[seat.name] = seat
        metrics.PEERS.inc()
        try:
            answer = await seat.peer.link.answer(offer)
        except BaseException:
            self._leave(seat)
            await seat.peer.link.close()
            raise
        task = asyncio.create_task(self._run(seat))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return seat, answer

    def _check_room(self, tenant: UUID) -> None:
        """Of all places one tenant has half at the most, so that it does not keep the others out."""
        most = self._terms.peers
        if len(self._seats) >= most:
            metrics.REFUSED.inc()
            raise Refused("overloaded", "all WebRTC peers of this relay are taken; try again", retry_after_ms=_FULL_MS)
        held = sum(seat.tenant == tenant for seat in self._seats.values())
        if held >= math.ceil(most / 2):
            metrics.REFUSED.inc()
            raise Refused("too_many_contexts", f"you have {held} WebRTC peers here, the most allowed; end one first")

    def find(self, name: str, tenant: UUID) -> Seat:
        """A tenant's peer; raises UnknownObject, in the same words for another's."""
        seat = self._seats.get(name)
        if seat is None or seat.tenant != tenant:
            raise UnknownObject("session", name)
        return seat

    def lend_servers(self) -> list[IceServer]:
        """Servers of STUN and TURN with credentials for one user, whom nobody else knows by this name."""
        return self._terms.servers.lend(secrets.token_hex(6), self._reception.clock.unix_ms() // 1000)

    def dismiss(self, seat: Seat, *, replaced: bool = False) -> None:
        """Let a peer go, as its client wants; it is not found any more."""
        seat.peer.end(Ending.REPLACED if replaced else Ending.DELETED)
        self._leave(seat)

    def _seat(self, visitor: Visitor, key: str, wishes: Wishes) -> Seat:
        name = secrets.token_urlsafe(24)
        floor = Floor()
        conversation = self._reception.converse(visitor, floor.forget)
        enrolment = Enrolment(self._services, SecretStr(key), visitor.origin)
        peer = Peer(self._terms, self.lend_servers(), conversation, floor, enrolment, wishes)
        return Seat(name, f'"{secrets.token_hex(8)}"', visitor.tenant, peer, self.lend_servers())

    async def _run(self, seat: Seat) -> None:
        try:
            await seat.peer.run()
        finally:
            self._leave(seat)
            self._giver.note_end()

    def _leave(self, seat: Seat) -> None:
        if self._seats.pop(seat.name, None) is not None:
            metrics.PEERS.dec()
