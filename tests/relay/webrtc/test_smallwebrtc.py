"""relay.webrtc.smallwebrtc against the running relay, in the words of Pipecat's clients."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from aiortc import RTCSessionDescription

from tests.conftest import MakeTenant, RunningStack
from tests.relay.webrtc.conftest import OWN_SERVERS, Speaker
from tests.relay.webrtc.listening import Listener, make_listener, make_offer
from tests.relay.webrtc.test_whep import check_problem, reasons_of


async def offer_to(http: httpx2.AsyncClient, listener: Listener, path: str = "/api/offer", **more: object) -> Any:
    """The answer to the listener's offer, which is applied."""
    body = {"sdp": await make_offer(listener), "type": "offer", **more}
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    read = answer.json()
    assert read["type"] == "answer" and set(read) == {"sdp", "type", "pc_id"}
    await listener.connection.setRemoteDescription(RTCSessionDescription(read["sdp"], "answer"))
    return read


async def test_an_offer_is_answered_and_a_text_spoken(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """What `requestData` asks for is heard; pings and messages for bots are taken without an error."""
    listener = make_listener()
    wish = {"voice": str(speaker.voice), "text": "Hello over there."}
    await offer_to(http, listener, requestData=wish)
    await listener.until_connected()
    listener.channel.send("ping: 1")
    listener.say(label="rtvi-ai", type="client-ready", id="1", data={})
    listener.say(type="signalling", message={"type": "trackStatus", "receiver_index": 0, "enabled": True})
    await listener.until("done", "text")
    listener.say(type="signalling", message={"type": "peerLeft"})
    await listener.until_gone()
    await listener.connection.close()


async def test_the_same_connection_is_negotiated_again(
    stack: RunningStack, http: httpx2.AsyncClient, speaker: Speaker
) -> None:
    """With its `pc_id` it stays what it is; with `restart_pc` there is another in its place."""
    listener = make_listener()
    first = await offer_to(http, listener)
    await listener.until_connected()
    again = await offer_to(http, listener, pc_id=first["pc_id"])
    assert again["pc_id"] == first["pc_id"]
    listener.open(speaker.voice)
    await listener.until("opened")
    other = make_listener()
    replaced = await offer_to(http, other, pc_id=first["pc_id"], restart_pc=True)
    assert replaced["pc_id"] != first["pc_id"]
    await other.until_connected()
    await listener.until_gone()
    assert reasons_of(stack)["replaced"] >= 1
    for gone in (listener, other):
        await gone.connection.close()


async def test_candidates_come_later(http: httpx2.AsyncClient, make_tenant: MakeTenant) -> None:
    """An empty one ends them; of an unknown connection, and of another tenant's, nothing is taken."""
    listener = make_listener()
    offer = await make_offer(listener)
    lines = offer.splitlines()
    bare = "".join(f"{line}\r\n" for line in lines if not line.startswith(("a=candidate", "a=end-of-candidates")))
    answer = (await http.post("/api/offer", json={"sdp": bare, "type": "offer"})).json()
    found = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate")][:4]
    hidden = "candidate:1 1 udp 1 aaaa.local 4000 typ host"
    candidates = [{"candidate": text, "sdp_mid": "0", "sdp_mline_index": 0} for text in [hidden, *found, ""]]
    body = {"pc_id": answer["pc_id"], "candidates": candidates}
    other = await make_tenant("other")
    check_problem(await http.patch("/api/offer", json={**body, "pc_id": "x"}), 404, "unknown_session")
    refused = await http.patch("/api/offer", json=body, headers={"Authorization": f"Bearer {other.key}"})
    check_problem(refused, 404, "unknown_session")
    nowhere = [{"candidate": found[0]}]
    check_problem(await http.patch("/api/offer", json={**body, "candidates": nowhere}), 422, "invalid_request")
    taken = await http.patch("/api/offer", json=body)
    assert (taken.status_code, taken.json()) == (200, {"status": "success"})
    await listener.connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
    await listener.until_connected()
    await listener.connection.close()


async def test_a_session_stands_for_the_key(stack: RunningStack, http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """A backend starts it, and its page connects and trickles without a key; the body is what the offer asks for."""
    body = {
        "transport": "webrtc",
        "enableDefaultIceServers": True,
        "body": {"voice": str(speaker.voice), "text": "Hi."},
    }
    started = (await http.post("/start", json=body)).json()
    assert [server["urls"] for server in started["iceConfig"]["iceServers"]] == OWN_SERVERS
    async with httpx2.AsyncClient(base_url=stack.relay_url) as page:
        path = f"/sessions/{started['sessionId']}/api/offer"
        listener = make_listener()
        answer = await offer_to(page, listener, path)
        end = {"pc_id": answer["pc_id"], "candidates": [{"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}]}
        assert (await page.patch(path, json=end)).status_code == 200
        await listener.until("done", "text")
        await listener.connection.close()
        check_problem(await page.post("/sessions/none/api/offer", json={}), 404, "unknown_session")
        check_problem(await page.post("/start", json={}), 401, "unauthorized")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "sdp"),
        ({"sdp": "v=0", "type": "answer"}, "type"),
        ({"sdp": 1, "type": "offer"}, "sdp"),
        ({"sdp": "v=0", "type": "offer", "request_data": {"voice": ""}}, "voice"),
        ({"sdp": "v=0", "type": "offer", "request_data": {"text": "Hello."}}, "voice"),
        ({"sdp": "v=0", "type": "offer"}, "sdp"),
    ],
)
async def test_what_cannot_be_read_is_refused(http: httpx2.AsyncClient, body: dict[str, object], field: str) -> None:
    """With the field at fault."""
    problem = check_problem(await http.post("/api/offer", json=body), 422, "invalid_request")
    assert problem["field"] == field


async def test_twenty_offers_at_once_are_served_or_refused(http: httpx2.AsyncClient) -> None:
    """A crowd gets the places there are, and everybody an answer."""
    offer = {"sdp": await make_offer(make_listener()), "type": "offer"}
    answers = await asyncio.gather(*(http.post("/api/offer", json=offer) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200, 429}
    for answer in answers:
        if answer.status_code == 200:
            await http.delete(f"/v1/whep/{answer.json()['pc_id']}")
