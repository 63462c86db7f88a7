"""relay.webrtc.whep against the running relay."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from typing import Any

import httpx2
import pytest
from aiortc import RTCPeerConnection, RTCSessionDescription

from tests.conftest import MakeTenant, RunningStack, wait_until
from tests.relay.webrtc.conftest import ORIGIN, OWN_SERVERS, PEERS, SECRET, Speaker
from tests.relay.webrtc.listening import NO_SERVERS, Listener, connect_whep, make_listener, make_offer

SDP = {"Content-Type": "application/sdp"}
FRAGMENT = {"Content-Type": "application/trickle-ice-sdpfrag"}


def check_problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem = answer.json()
    assert problem["code"] == code, problem
    return dict(problem)


def peers_of(stack: RunningStack) -> int:
    """How many peers the relay says it has."""
    text = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text
    return int(float(next(line for line in text.splitlines() if line.startswith("timbrelay_webrtc_peers ")).split()[1]))


def reasons_of(stack: RunningStack) -> dict[str, int]:
    """How many peers have ended for which reason."""
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("timbrelay_webrtc_peers_ended_total{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in found}


def ufrag_of(listener: Listener) -> str:
    lines = listener.connection.localDescription.sdp.splitlines()
    return next(line for line in lines if line.startswith("a=ice-ufrag:"))


async def test_an_offer_makes_a_session(stack: RunningStack, http: httpx2.AsyncClient) -> None:
    """201 with the answer, its address, its entity tag; media flow; DELETE ends it for both sides."""
    async with connect_whep(http) as listener:
        assert listener.session.startswith("/v1/whep/") and listener.etag.startswith('"')
        await listener.until_connected()
        answer = listener.connection.remoteDescription.sdp
        assert "a=sendonly" in answer and "opus/48000/2" in answer and "PCMU" not in answer
        assert (await http.delete(listener.session)).status_code == 200
        check_problem(await http.delete(listener.session), 404, "unknown_session")
        await listener.until_gone()
    wait_until(lambda: peers_of(stack) == 0)
    assert reasons_of(stack)["deleted"] >= 1


async def test_the_endpoint_says_what_it_takes(http: httpx2.AsyncClient) -> None:
    """OPTIONS names the format; GET is reserved (RFC 9725, section 4.2)."""
    options = await http.options("/v1/whep")
    assert (options.status_code, options.headers["accept-post"]) == (204, "application/sdp")
    refused = await http.get("/v1/whep")
    check_problem(refused, 405, "method_not_allowed")
    assert "POST" in refused.headers["allow"]
    check_problem(await http.put("/v1/whep/none"), 405, "method_not_allowed")


async def test_a_client_is_told_of_the_ice_servers(stack: RunningStack, http: httpx2.AsyncClient) -> None:
    """With the answer, and before an offer if it has a key: each with a credential that only TURN can check."""
    async with connect_whep(http) as listener:
        links = listener.links
        await listener.until_connected()
    assert [link.partition(">")[0][1:] for link in links] == [url for urls in OWN_SERVERS for url in urls]
    user, credential = (links[1].partition(f'{name}="')[2].partition('"')[0] for name in ("username", "credential"))
    expected = hmac.digest(SECRET.encode(), user.encode(), "sha1")
    assert base64.b64decode(credential) == expected and 0 < int(user.partition(":")[0]) - time.time() <= 600
    assert len((await http.options("/v1/whep")).headers.get_list("link")) == 3
    async with httpx2.AsyncClient(base_url=stack.relay_url) as nobody:
        assert "link" not in (await nobody.options("/v1/whep")).headers


async def test_offers_that_lead_to_nothing_are_refused(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """Each with a problem that says what is missing."""
    offer = await make_offer(make_listener())

    async def post(content: str, kind: str = "application/sdp", **query: str) -> httpx2.Response:
        return await http.post("/v1/whep", content=content, headers={"Content-Type": kind}, params=query)

    check_problem(await post(offer, "application/json"), 415, "unsupported_media_type")
    check_problem(await post("v=0"), 422, "invalid_request")
    check_problem(await post(offer.replace("a=ice-pwd", "a=ice-")), 422, "invalid_request")
    check_problem(await post(offer.replace("m=audio", "m=video")), 422, "invalid_request")
    check_problem(await post(offer + "a=x\r\n" * 20_000), 413, "body_too_large")
    check_problem(await post(offer, voice="nobody"), 404, "unknown_voice")
    check_problem(await post(offer, voice="x" * 100), 422, "invalid_request")
    check_problem(await post(offer, text="Hello."), 422, "invalid_request")
    check_problem(await post(offer, text="x" * 10_001, voice=str(speaker.voice)), 422, "invalid_request")


async def test_who_has_no_key_or_another_does_not_come_in(
    stack: RunningStack, http: httpx2.AsyncClient, make_tenant: MakeTenant
) -> None:
    """401 without a key, 403 without the scope; another tenant's session is unknown."""
    offer = await make_offer(make_listener())
    async with httpx2.AsyncClient(base_url=stack.relay_url) as nobody:
        check_problem(await nobody.post("/v1/whep", content=offer, headers=SDP), 401, "unauthorized")
        check_problem(await nobody.delete("/v1/whep/x"), 401, "unauthorized")
    enroller = await make_tenant("acme", scopes=("enrol",))
    other = await make_tenant("other")
    async with connect_whep(http) as listener:
        for key, status, code in ((enroller.key, 403, "insufficient_scope"), (other.key, 404, "unknown_session")):
            headers = {"Authorization": f"Bearer {key}"}
            check_problem(await http.delete(listener.session, headers=headers), status, code)
        await listener.until_connected()


async def test_trickled_candidates_are_taken(http: httpx2.AsyncClient) -> None:
    """A client that has offered no candidate is found by those that it sends later, under the entity tag."""
    listener = make_listener()
    offer = await make_offer(listener)
    lines = offer.splitlines()
    bare = "".join(f"{line}\r\n" for line in lines if not line.startswith(("a=candidate", "a=end-of-candidates")))
    answer = await http.post("/v1/whep", content=bare, headers=SDP)
    session, tag = answer.headers["location"], answer.headers["etag"]
    ufrag = ufrag_of(listener)
    found = [line for line in lines if line.startswith("a=candidate")][:4]
    fragment = "\r\n".join([ufrag, "m=audio 9 UDP/TLS/RTP/SAVPF 0", "a=mid:0", *found, "a=end-of-candidates", ""])

    async def patch(content: str = fragment, **headers: str) -> httpx2.Response:
        given = {**FRAGMENT, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await http.patch(session, content=content, headers=given)

    check_problem(await patch(), 428, "precondition_required")
    check_problem(await patch(If_Match='"other"'), 412, "precondition_failed")
    check_problem(await patch(If_Match=tag, Content_Type="text/plain"), 415, "unsupported_media_type")
    check_problem(await patch(fragment.replace(ufrag, "a=ice-ufrag:zzzz"), If_Match="*"), 422, "invalid_request")
    assert (await patch(If_Match=tag)).status_code == 204
    await listener.connection.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
    await listener.until_connected()
    await listener.connection.close()


async def test_a_session_is_known_by_what_its_offer_said(http: httpx2.AsyncClient) -> None:
    """Also where that could not be written again: an address that is none is nobody's to connect to here."""
    listener = make_listener()
    offer = (await make_offer(listener)).replace("c=IN IP4 ", "c=IN IP4 x")
    answer = await http.post("/v1/whep", content=offer, headers=SDP)
    assert answer.status_code == 201
    headers = {**FRAGMENT, "If-Match": answer.headers["etag"]}
    session = answer.headers["location"]
    fragment = f"{ufrag_of(listener)}\r\na=end-of-candidates\r\n"
    assert (await http.patch(session, content=fragment, headers=headers)).status_code == 204
    await http.delete(session)
    await listener.connection.close()


async def test_video_and_second_tracks_are_answered_and_not_used(http: httpx2.AsyncClient) -> None:
    """Only the first audio section is in use; the others are inactive."""
    connection = RTCPeerConnection(NO_SERVERS)
    for kind in ("audio", "video", "audio"):
        connection.addTransceiver(kind, direction="sendrecv")
    await connection.setLocalDescription(await connection.createOffer())
    answer = await http.post("/v1/whep", content=connection.localDescription.sdp, headers=SDP)
    assert answer.status_code == 201
    directions = [line for line in answer.text.splitlines() if line in ("a=sendrecv", "a=sendonly", "a=inactive")]
    assert directions == ["a=sendrecv", "a=inactive", "a=inactive"]
    await http.delete(answer.headers["location"])
    await connection.close()


async def test_there_is_room_for_so_many_peers(
    stack: RunningStack, http: httpx2.AsyncClient, make_tenant: MakeTenant
) -> None:
    """A tenant has half of the places; whoever is one too many is told so, and has one as soon as another goes."""
    wait_until(lambda: peers_of(stack) == 0)
    offer = await make_offer(make_listener())
    keys = [http.headers["Authorization"], f"Bearer {(await make_tenant('other')).key}"]
    sessions = []
    for key in keys:
        http.headers["Authorization"] = key
        for _ in range(PEERS):
            answer = await http.post("/v1/whep", content=offer, headers=SDP)
            assert answer.status_code == 201
            sessions.append((key, answer.headers["location"]))
        refused = await http.post("/v1/whep", content=offer, headers=SDP)
        check_problem(refused, 429, "too_many_contexts" if key == keys[0] else "overloaded")
        assert int(refused.headers["retry-after"]) > 0
    for key, session in sessions:
        await http.delete(session, headers={"Authorization": key})
    again = await http.post("/v1/whep", content=offer, headers=SDP)
    assert again.status_code == 201
    await http.delete(again.headers["location"])


async def test_pages_of_allowed_origins_may_call(stack: RunningStack, http: httpx2.AsyncClient) -> None:
    """A preflight is answered for them, errors can be read by them, and others get no such header."""
    asked = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization,if-match"}
    async with httpx2.AsyncClient(base_url=stack.relay_url) as page:
        for path in ("/v1/whep", "/v1/whep/x", "/v1/whep/x/messages", "/api/offer", "/sessions/x/api/offer", "/start"):
            allowed = await page.options(path, headers={"Origin": ORIGIN, **asked})
            assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == ORIGIN
            other = await page.options(path, headers={"Origin": "https://evil.example", **asked})
            assert "access-control-allow-origin" not in other.headers
    refused = await http.post("/v1/whep", content="v=0", headers={**SDP, "Origin": ORIGIN})
    assert refused.status_code == 422 and refused.headers["access-control-allow-origin"] == ORIGIN
    assert "Location" in refused.headers["access-control-expose-headers"]


async def test_a_client_that_goes_without_a_word_is_noticed(stack: RunningStack, http: httpx2.AsyncClient) -> None:
    """One that has pinged and stops is let go after three seconds, one that closes its connection at once."""
    before = reasons_of(stack)
    async with connect_whep(http) as listener:
        await listener.until_connected()
        listener.channel.send("ping")
        async with asyncio.timeout(10):
            while reasons_of(stack).get("silent", 0) == before.get("silent", 0):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    async with connect_whep(http) as listener:
        await listener.until_connected()
    wait_until(lambda: reasons_of(stack).get("left", 0) > before.get("left", 0), 2.0)


@pytest.mark.timeout(60)
async def test_a_peer_that_never_connects_is_let_go(stack: RunningStack, http: httpx2.AsyncClient) -> None:
    """An offer whose client never comes costs a place for fifteen seconds, and is counted as stuck."""
    wait_until(lambda: peers_of(stack) == 0)
    answer = await http.post("/v1/whep", content=await make_offer(make_listener()), headers=SDP)
    assert answer.status_code == 201
    await asyncio.to_thread(wait_until, lambda: reasons_of(stack).get("stuck", 0) + reasons_of(stack).get("failed", 0))
    wait_until(lambda: peers_of(stack) == 0)
