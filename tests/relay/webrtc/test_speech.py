"""The WebRTC door with real speech: a client of aiortc, a relay, and a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import numpy as np
from websockets.asyncio.client import ClientConnection

from relay.native.frames import HEADER, MEL
from tests.conftest import DEADLINE_S, RunningStack
from tests.relay.conftest import open_context, open_socket
from tests.relay.webrtc.conftest import Speaker
from tests.relay.webrtc.listening import Listener, connect_whep

TEXT = "The first sentence is here. The second one follows it."
LONG = "One two three four five six seven eight. " * 12
RATE = 24_000
MEL_HOP = 240


def say(listener: Listener, speaker: Speaker, text: str, context: str = "c", **more: object) -> None:
    listener.open(speaker.voice, context, **more)
    listener.say(type="text", context=context, text=text)
    listener.say(type="end", context=context)


async def until_loud(listener: Listener) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not listener.loud().any():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def words_of(listener: Listener) -> list[dict[str, Any]]:
    return [word for told in listener.told if told["type"] == "words" for word in told["words"]]


async def test_what_is_spoken_is_heard_to_its_end(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """The track holds as much speech as the samples that `done` names, and words come with their times."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        say(listener, speaker, TEXT)
        done = await listener.until("done")
        await listener.until("played")
        await asyncio.sleep(0.2)
        spoken_s = done["samples"] / RATE
        assert abs(listener.loud_s() - spoken_s) < 0.1 * spoken_s
        assert [word["text"] for word in words_of(listener)] == TEXT.split()
        assert [told["type"] for told in listener.told if told["type"] in ("playing", "played")] == [
            "playing",
            "played",
        ]


async def test_the_track_never_stops_and_its_times_never_restart(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """Frames of 20 ms come without a gap from the first on: silence, short utterances, silence, one after the other."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        for context in ("a", "b", "c"):
            say(listener, speaker, "Hello.", context)
            await listener.until("played", context)
        times = [pts for pts, _ in listener.frames]
        assert np.diff(times).tolist() == [960] * (len(times) - 1)
        loud = listener.loud()
        beginnings = np.flatnonzero(np.diff(loud.astype(int)) == 1)
        assert len(beginnings) >= 2 and not loud.all()


async def test_contexts_take_turns(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """Two that speak at once are heard one after the other, each whole."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        say(listener, speaker, TEXT, "a")
        say(listener, speaker, TEXT, "b")
        # Whichever is made first.
        samples = [(await listener.until("done"))["samples"] for _ in range(2)]
        await listener.until("played", "b")
        await asyncio.sleep(0.2)
        order = [(m["type"], m["context"]) for m in listener.told if m["type"] in ("playing", "played")]
        assert [entry for entry in order if entry[0] == "played"] == [("played", "a"), ("played", "b")]
        assert order.index(("played", "a")) < order.index(("playing", "b"))
        spoken_s = sum(samples) / RATE
        assert abs(listener.loud_s() - spoken_s) < 0.15 * spoken_s


async def test_a_cancelled_context_is_silent_at_once(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """After `cancelled` no more of it is heard than was in the network, and the connection goes on."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        say(listener, speaker, LONG)
        await until_loud(listener)
        listener.say(type="cancel", context="c")
        await listener.until("cancelled")
        count = len(listener.frames)
        await asyncio.sleep(0.5)
        after = listener.loud()[count:]
        # Four frames in the receiver's own buffer, and what the decoder says last.
        assert not after[8:].any() and len(after) > 15
        say(listener, speaker, "And on.", "d")
        await listener.until("played", "d")


async def test_twenty_interruptions_leave_nothing_behind(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """One context after the other is cut off in its first words; the last is heard whole."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        for number in range(20):
            say(listener, speaker, LONG, f"c{number}")
            await listener.until("words", f"c{number}")
            listener.say(type="cancel", context=f"c{number}")
            await listener.until("cancelled", f"c{number}")
        count = len(listener.frames)
        say(listener, speaker, TEXT, "last")
        done = await listener.until("done", "last")
        await listener.until("played", "last")
        await asyncio.sleep(0.2)
        (found,) = np.nonzero(listener.loud()[count + 10 :])
        assert abs((found[-1] - found[0] + 1) * 0.02 - done["samples"] / RATE) < 0.5


async def test_mel_frames_arrive_as_they_are_decoded(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """The same as many as the audio is long, in order, finite; a context that did not ask for them gets none."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        say(listener, speaker, TEXT, mel=True)
        done = await listener.until("done")
        heads = [HEADER.unpack(mel[: HEADER.size]) for mel in listener.mels]
        frames = [np.frombuffer(mel[HEADER.size :], "<f2").reshape(-1, 80) for mel in listener.mels]
        assert all(
            head[0] == 1 and head[1] & MEL and head[2] == len(mel) for head, mel in zip(heads, frames, strict=True)
        )
        assert [head[4:6] for head in heads] == sorted(head[4:6] for head in heads)
        mel = np.concatenate(frames)
        assert np.isfinite(mel).all() and mel.astype("f4").std() > 0.1
        assert len(mel) * MEL_HOP == done["samples"]
        listener.mels.clear()
        say(listener, speaker, TEXT, "d")
        await listener.until("done", "d")
        assert listener.mels == []


async def test_a_text_in_the_address_is_spoken_once_there_is_a_connection(
    http: httpx2.AsyncClient, speaker: Speaker
) -> None:
    """A client needs nothing but an offer to hear something: no data channel, no message."""
    async with connect_whep(http, channel=False, voice=speaker.voice, text="Nothing but an offer.") as listener:
        await listener.until_connected()
        await until_loud(listener)


async def test_messages_come_over_http_as_well(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """For a client without a data channel; what cannot be read is refused at once."""
    async with connect_whep(http, channel=False, voice=speaker.voice) as listener:
        await listener.until_connected()
        address = f"{listener.session}/messages"
        for message in (
            {"type": "open", "context": "c"},
            {"type": "text", "context": "c", "text": TEXT},
            {"type": "end", "context": "c"},
        ):
            assert (await http.post(address, json=message)).status_code == 202
        await until_loud(listener)
        assert (await http.post(address, content="{", headers={"Content-Type": "application/json"})).status_code == 422
        assert (await http.post(address, content="{}", headers={"Content-Type": "text/plain"})).status_code == 415
        assert (await http.post("/v1/whep/none/messages", json={})).status_code == 404


async def test_bad_messages_are_answered_and_end_nothing(http: httpx2.AsyncClient, speaker: Speaker) -> None:
    """Unknown voices and contexts, no JSON, no text: an error each; too many of them end the connection."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        listener.channel.send("{")
        listener.channel.send(b"\0")
        listener.open("nobody", "x")
        listener.say(type="text", context="y", text="Hello.")
        say(listener, speaker, "🎉🎉", "z")
        codes: list[str] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(codes) < 5:
                message = await listener.messages.get()
                codes += [message["code"]] if message["type"] == "error" else []
        assert sorted(codes) == sorted(["invalid_message"] * 2 + ["unknown_voice", "unknown_context", "nothing_to_say"])
        say(listener, speaker, "Still here.")
        await listener.until("played", "c")
        for _ in range(40):
            listener.channel.send("{")
        async with asyncio.timeout(DEADLINE_S):
            while (message := await listener.messages.get())["type"] != "closing":
                assert message["type"] in ("error", "signalling"), message
        assert message["code"] == 1008
        await listener.until_gone()


async def test_who_leaves_costs_nothing_any_more(
    http: httpx2.AsyncClient, stack: RunningStack, speaker: Speaker
) -> None:
    """Contexts of a peer whose connection is gone end within a second."""
    async with connect_whep(http) as listener:
        await listener.until_connected()
        say(listener, speaker, LONG)
        await until_loud(listener)
    async with asyncio.timeout(2.0):
        while _contexts(stack):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_same_voice_says_the_same_as_over_a_websocket(
    http: httpx2.AsyncClient, stack: RunningStack, speaker: Speaker
) -> None:
    """What is heard on the track correlates with the samples that the native protocol gives."""
    async with open_socket(stack, speaker.tenant.key) as socket:
        pcm = await speak_native(socket, speaker)
    async with connect_whep(http) as listener:
        await listener.until_connected()
        say(listener, speaker, TEXT)
        await listener.until("played")
        await asyncio.sleep(0.2)
        sound = listener.sound()[::2]
    envelopes = [_envelope(pcm), _envelope(sound)]
    found = np.correlate(envelopes[1] - envelopes[1].mean(), envelopes[0] - envelopes[0].mean(), "full").max()
    norm = np.prod([np.linalg.norm(envelope - envelope.mean()) for envelope in envelopes])
    assert found / norm > 0.8


async def speak_native(socket: ClientConnection, speaker: Speaker) -> Any:
    await open_context(socket, speaker.voice)
    await socket.send('{"type": "text", "context": "c", "text": "' + TEXT + '"}')
    await socket.send('{"type": "end", "context": "c"}')
    pcm = b""
    async with asyncio.timeout(DEADLINE_S):
        while not isinstance(message := await socket.recv(), str) or '"done"' not in message:
            pcm += message[HEADER.size :] if isinstance(message, bytes) else b""
    return np.frombuffer(pcm, "<i2") / 32768


def _envelope(sound: Any) -> Any:
    """The loudness in steps of 10 ms."""
    return np.sqrt((sound[: len(sound) // 240 * 240].reshape(-1, 240) ** 2).mean(axis=1))


def _contexts(stack: RunningStack) -> int:
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("timbrelay_contexts ")).split()[1]))
