"""Pipecat's SmallWebRTC transport: `/start`, `/api/offer`, a track that speaks and a data channel that talks."""

from __future__ import annotations

import numpy as np
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, check_voice
from _small import RATE, make_client, meet_on_loopback
from pipecat.transports.smallwebrtc.connection import TrackStatusMessage

meet_on_loopback()
SECONDS = (1.5, 10.0)


def speak(voice: str, text: str, context: str = "c") -> list[dict[str, str]]:
    """What opens a context, fills it and ends it."""
    return [
        {"type": "open", "context": context, "voice": voice},
        {"type": "text", "context": context, "text": text},
        {"type": "end", "context": context},
    ]


async def test_a_page_without_a_key_hears_what_its_backend_asked_for(stack: Stack) -> None:
    """`/start` with the backend's key gives a session; its page connects by it, and hears the text in the voice."""
    body = {"voice": stack.voices["high"], "text": TEXT}
    async with make_client(stack.http, stack.key) as backend:
        asked = {"transport": "webrtc", "enableDefaultIceServers": True, "body": body}
        started = (await backend.http.post("/start", json=asked)).json()
    async with make_client(stack.http, None, offers=f"/sessions/{started['sessionId']}/api/offer") as client:
        await client.connect()
        await client.until(lambda: client.messages("hello") and client.messages("played"))
        assert client.messages("error") == []
        check_speech(client.sound, RATE, seconds=SECONDS)
        check_voice(client.sound, RATE, "high")


async def test_contexts_are_spoken_one_after_another(stack: Stack) -> None:
    """Two contexts in two voices by the data channel: each is said to be played, in their order."""
    async with make_client(stack.http, stack.key) as client:
        await client.connect(request_data={})
        for name in ("low", "high"):
            for message in speak(stack.voices[name], TEXT, name):
                client.send(**message)
        await client.until(lambda: len(client.messages("played")) == 2)
        assert [message["context"] for message in client.messages("played")] == ["low", "high"]
        assert client.messages("error") == []
        check_speech(client.sound, RATE, seconds=(3.0, 20.0))
        # The second begins about in the middle; its last third is its own.
        check_voice(client.sound[: len(client.sound) // 3], RATE, "low")
        check_voice(client.sound[-len(client.sound) // 3 :], RATE, "high")


async def test_an_interruption_is_silence_and_the_next_answer_is_heard(stack: Stack) -> None:
    """After `cancelled` nothing of the long answer is heard any more; what is asked for next is."""
    voice = stack.voices["low"]
    async with make_client(stack.http, stack.key) as client:
        await client.connect()
        for message in speak(voice, LONG_TEXT, "long")[:2]:
            client.send(**message)
        await client.until(lambda: client.messages("playing") and len(client.sound) > RATE // 2)
        client.send(type="cancel", context="long")
        await client.until(lambda: client.messages("cancelled"))
        cancelled = len(client.heard)
        # Frames of 20 ms that were under way: sent, or kept back by the receiver to put them in order.
        await client.until(lambda: len(client.heard) >= cancelled + 50)
        assert np.abs(np.concatenate(client.heard[cancelled + 20 :])).max() < 0.01
        client.heard.clear()
        for message in speak(voice, TEXT, "short"):
            client.send(**message)
        await client.until(lambda: client.messages("played"))
        check_speech(client.sound, RATE, seconds=SECONDS)


async def test_candidates_may_come_later(stack: Stack) -> None:
    """An offer without any, and a `PATCH` with those that were found since; an empty one ends them."""
    async with make_client(stack.http, stack.key) as client:
        await client.connection.setLocalDescription(await client.connection.createOffer())
        lines = client.connection.localDescription.sdp.splitlines()
        bare = [line for line in lines if not line.startswith(("a=candidate:", "a=end-of-candidates"))]
        await client.take(await client.post("\r\n".join([*bare, ""])))
        found = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate:")]
        candidates = [{"candidate": line, "sdp_mid": "0", "sdp_mline_index": 0} for line in [*dict.fromkeys(found), ""]]
        patched = await client.http.patch(client.offers, json={"pc_id": client.pc_id, "candidates": candidates})
        assert (patched.status_code, patched.json()) == (200, {"status": "success"})
        await client.until(lambda: client.channel.readyState == "open")


async def test_an_offer_with_its_id_is_the_same_connection(stack: Stack) -> None:
    """A change of media is negotiated with the peer that is there, and what it says goes on."""
    async with make_client(stack.http, stack.key) as client:
        await client.connect(requestData={"voice": stack.voices["low"], "text": TEXT})
        before = client.pc_id
        client.signal(**TrackStatusMessage(type="trackStatus", receiver_index=0, enabled=False).model_dump())
        await client.take(await client.offer())
        assert client.pc_id == before
        await client.until(lambda: client.messages("played"))
        assert client.messages("error") == []
        check_speech(client.sound, RATE, seconds=SECONDS)


async def test_who_says_good_bye_is_let_go(stack: Stack) -> None:
    """`peerLeft` ends the connection at once, and its id leads nowhere."""
    async with make_client(stack.http, stack.key) as client:
        await client.connect()
        client.signal(type="peerLeft")
        await client.until(lambda: client.connection.connectionState == "closed")
        patched = await client.http.patch(client.offers, json={"pc_id": client.pc_id, "candidates": []})
        assert patched.status_code == 404


async def test_who_pings_no_more_is_let_go(stack: Stack) -> None:
    """A client that pinged and is silent for some seconds is gone, whatever its network still says."""
    async with make_client(stack.http, stack.key, pings=False) as client:
        await client.connect()
        client.channel.send("ping: 1")
        await client.until(lambda: client.connection.connectionState == "closed")


@pytest.mark.parametrize("address", ["/start", "/api/offer"])
async def test_a_wrong_key_opens_nothing(stack: Stack, address: str) -> None:
    """401, and no word of what is there."""
    async with make_client(stack.http, stack.wrong_key) as client:
        refused = await client.offer() if address == client.offers else await client.http.post(address, json={})
        assert refused.status_code == 401


@pytest.mark.parametrize("whose", ["nobody", "another"])
async def test_an_unknown_voice_is_refused_and_so_is_another_tenants(stack: Stack, whose: str) -> None:
    """The same answer for both: nobody learns what others have."""
    voice = {"nobody": UNKNOWN_VOICE, "another": stack.foreign_voice}[whose]
    async with make_client(stack.http, stack.key) as client:
        refused = await client.offer(request_data={"voice": voice, "text": TEXT})
        assert refused.status_code == 404


async def test_another_tenants_connection_cannot_be_touched(stack: Stack) -> None:
    """Its id leads nowhere with another key."""
    async with make_client(stack.http, stack.key) as client, make_client(stack.http, stack.other_key) as stranger:
        await client.connect()
        patched = await stranger.http.patch(client.offers, json={"pc_id": client.pc_id, "candidates": []})
        assert patched.status_code == 404


async def test_a_text_of_nothing_is_said_to_be_nothing(stack: Stack) -> None:
    """Blank text and emoji are a clear error of their context, and the next one speaks."""
    async with make_client(stack.http, stack.key) as client:
        await client.connect()
        for context, text in (("blank", " \n "), ("emoji", "🎉"), ("words", "Good morning.")):
            for message in speak(stack.voices["low"], text, context):
                client.send(**message)
        await client.until(lambda: client.messages("played"))
        errors = [(message["context"], message["code"]) for message in client.messages("error")]
        assert errors == [("blank", "nothing_to_say"), ("emoji", "nothing_to_say")]
        check_speech(client.sound, RATE, seconds=(0.4, 3.0))
