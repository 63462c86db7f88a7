"""Offers, candidates and messages as a peer of WebRTC might send them that has read none of the standards."""

from __future__ import annotations

import json
from random import Random

import httpx2

from tests.relay.webrtc.listening import Listener, make_listener, make_offer
from tests.system.fuzzing.conftest import Scene
from tests.system.fuzzing.mutations import LONG_NUMBER, mutate, spell
from tests.system.fuzzing.texts import make_text

SDP, FRAGMENT, JSON = "application/sdp", "application/trickle-ice-sdpfrag", "application/json"
_LINES = (
    "",
    "v=1",
    "m=",
    "m=audio",
    "m=audio 9 UDP/TLS/RTP/SAVPF " + "111 " * 2_000,
    "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
    "a=rtpmap:111 opus/48000/2\x00",
    f"a=rtpmap:{LONG_NUMBER} opus/48000/2",
    "a=rtpmap:111 opus/0/0",
    "a=fmtp:111 " + "x=y;" * 3_000,
    "a=fingerprint:sha-256 zz",
    "a=fingerprint:md5 00:00",
    "a=ice-ufrag:",
    "a=ice-pwd:" + "x" * 5_000,
    "a=setup:holdconn",
    "a=mid:" + "x" * 300,
    "a=ssrc:-1 cname:x",
    "a=sctp-port:99999999",
    "a=max-message-size:0",
    "a=group:BUNDLE 0 0 0 9",
    f"a=candidate:1 1 udp 1 127.0.0.1 {LONG_NUMBER} typ host",
    "a=candidate:1 1 udp 1 ::1 1 typ host",
    "a=candidate:1 1 udp -1 0.0.0.0 0 typ host",
    "a=candidate:1 1 udp 1 300.1.1.1 9 typ host",
    "a=candidate:1 1 udp 99999999999999999999 127.0.0.1 9 typ nothing raddr",
    "a=candidate:" + "x " * 40,
    "a=simulcast:send 1;2;3",
    "\u2028\ufeff",
)


class Caller:
    """What one client sends to signalling, from one seed."""

    def __init__(self, scene: Scene, http: httpx2.AsyncClient, offer: str, seed: int) -> None:
        self._scene = scene
        self._http = http
        self._offer = offer
        self._random = Random(f"peer {seed}")

    async def run(self) -> int:
        """Offers, trickles, talks and leaves; returns the status of the offer's answer."""
        offer = _twist(self._random, self._offer)
        made = await (self._offer_whep(offer) if self._random.random() < 0.6 else self._offer_small(offer))
        check_refusal(made)
        if made.status_code in (200, 201):
            await self._go_on(made)
        return made.status_code

    async def _offer_whep(self, offer: str) -> httpx2.Response:
        query = {"voice": self._scene.voice, "text": make_text(self._random)} if self._random.random() < 0.3 else {}
        query = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
        kind = SDP if self._random.random() < 0.95 else JSON
        return await self._http.post("/v1/whep", content=_encode(offer), headers={"Content-Type": kind}, params=query)

    async def _offer_small(self, offer: str) -> httpx2.Response:
        message = {"sdp": offer, "type": "offer", "request_data": {"voice": self._scene.voice}, "restart_pc": True}
        text = spell(self._random, mutate(self._random, message) if self._random.random() < 0.3 else message)
        return await self._http.post("/api/offer", content=_encode(text), headers={"Content-Type": JSON})

    async def _go_on(self, made: httpx2.Response) -> None:
        session = made.headers.get("location") or f"/v1/whep/{made.json()['pc_id']}"
        for _ in range(self._random.randrange(4)):
            fragment = "\r\n".join(["a=ice-ufrag:x", *self._random.choices(_LINES, k=4)])
            if self._random.random() < 0.7:
                ufrag = [line for line in self._offer.splitlines() if line.startswith("a=ice-ufrag")][:1]
                fragment = "\r\n".join([*ufrag, *self._random.choices(_LINES, k=4)])
            headers = {"Content-Type": FRAGMENT, "If-Match": "*"}
            check_refusal(await self._http.patch(session, content=_encode(fragment), headers=headers))
            small = {
                "pc_id": session.rpartition("/")[2],
                "candidates": [{"candidate": self._random.choice(_LINES)[2:], "sdp_mid": "0", "sdp_mline_index": 0}],
            }
            text = spell(self._random, mutate(self._random, small))
            check_refusal(await self._http.patch("/api/offer", content=_encode(text), headers={"Content-Type": JSON}))
            said = _encode(make_message(self._random, self._scene.voice))
            headers = {"Content-Type": JSON}
            check_refusal(await self._http.post(f"{session}/messages", content=said, headers=headers))
        check_refusal(await self._http.delete(session))


def make_message(random: Random, voice: str) -> str:
    """Something that is said over a data channel."""
    message = random.choice(
        (
            {"type": "open", "context": "c", "voice": voice, "format": "mp3_24000_32", "mel": True},
            {"type": "text", "context": "c", "text": make_text(random)},
            {"type": "cancel", "context": "c"},
            {"type": "capture", "action": "start", "consent": "x", "name": make_text(random)[:300]},
            {"type": "capture", "action": "stop"},
            {"type": "signalling", "message": {"type": "x", "data": [1]}},
            {"label": "rtvi-ai", "type": "client-ready", "data": {}},
        )
    )
    return spell(random, mutate(random, message))


async def make_offers() -> tuple[list[Listener], list[str]]:
    """Two valid offers, and the clients that made them, to be closed."""
    listeners = [make_listener(), make_listener(channel=False)]
    return listeners, [await make_offer(listener) for listener in listeners]


def check_refusal(answer: httpx2.Response) -> None:
    """A problem that says what is wrong, if it is none that all is well."""
    if answer.is_error:
        assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, answer.text)
        problem = json.loads(answer.text)
        assert problem["code"] != "internal" and problem["title"], problem


def _twist(random: Random, offer: str) -> str:
    lines = offer.splitlines()
    for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
        place = random.randrange(len(lines) or 1)
        match random.randrange(6):
            case 0:
                del lines[place : place + 1]
            case 1:
                lines.insert(place, random.choice(_LINES))
            case 2:
                lines[place : place + 1] = [random.choice(_LINES)]
            case 3:
                lines[place : place + 1] = lines[place : place + 1] * 40
            case 4:
                random.shuffle(lines)
            case 5:
                line = "".join(lines[place : place + 1])
                cut = random.randrange(len(line) + 1)
                lines[place : place + 1] = [line[:cut] + random.choice(("\x00", "é", " ", ":", "9" * 30)) + line[cut:]]
    return "\r\n".join([*lines, ""])


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
