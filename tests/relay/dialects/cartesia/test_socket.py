"""Cartesia's WebSocket of a running relay and worker."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.conftest import MakeTenant, MakeVoice, RunningStack
from tests.relay.dialects.cartesia.conftest import TEXT, Http, Speaking, dial, hear, say
from tests.relay.dialects.cartesia.wire import audio, kinds, words
from tests.system.conftest import LONG_SENTENCE, embed

ONE_STACK = True
LONG = f"{LONG_SENTENCE}. " * 20


async def test_a_turn_is_spoken_token_by_token(stack: RunningStack, acme: Speaking) -> None:
    """With the times of its words, which rise and end within the audio; the id of the connection is in a header."""
    async with dial(stack, acme.tenant.key) as connection:
        assert connection.response is not None
        assert connection.response.headers["x-request-id"]
        asked = acme.ask("", add_timestamps=True, **{"continue": True})
        for token in TEXT.split(" "):
            await say(connection, asked, "turn", transcript=f"{token} ")
        await say(connection, asked, "turn", **{"continue": False})
        frames = await hear(connection, "turn")
    assert kinds(frames)[-1] == "done"
    seconds = len(audio(frames, "turn")) / 48_000
    told = words(frames, "turn")
    assert 1.0 < seconds < 10.0
    assert [word for word, _, _ in told] == TEXT.split()
    times = [time for _, start, end in told for time in (start, end)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= seconds


async def test_contexts_side_by_side_are_what_they_are_alone(
    stack: RunningStack, acme: Speaking, make_voice: MakeVoice
) -> None:
    """Byte for byte, with two voices and two formats."""
    high = str(await make_voice(acme.tenant.id, embedding=embed("high"), name="high"))
    other = {"voice": {"id": high}, "output_format": {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}}
    async with dial(stack, acme.tenant.key) as connection:
        alone = {}
        for context, changed in (("a", {}), ("b", other)):
            await say(connection, acme.ask(TEXT, **changed), context)
            alone[context] = audio(await hear(connection, context), context)
        await say(connection, acme.ask(TEXT), "a")
        await say(connection, acme.ask(TEXT, **other), "b")
        frames = await hear(connection, "a", "b")
    assert {context: audio(frames, context) for context in "ab"} == alone
    assert len(alone["a"]) != len(alone["b"]) > 8000


async def test_interruptions_leave_nothing_behind(stack: RunningStack, acme: Speaking) -> None:
    """Twenty in a row with one id, each in the middle of a sentence: then the id speaks, and nothing else is heard."""
    async with dial(stack, acme.tenant.key) as connection:
        await say(connection, acme.ask(TEXT), "alone")
        alone = audio(await hear(connection, "alone"), "alone")
        for _ in range(20):
            await say(connection, acme.ask(LONG), "c")
            while json.loads(await connection.recv())["type"] != "chunk":
                pass
            await connection.send(json.dumps({"context_id": "c", "cancel": True}))
        await connection.send("{")
        while json.loads(await connection.recv())["type"] != "error":
            pass
        await say(connection, acme.ask(TEXT), "c")
        assert audio(await hear(connection, "c"), "c") == alone


@pytest.mark.parametrize("way", ["?api_key=", "?cartesia_version=2025-04-16&access_token="])
async def test_a_browser_brings_its_key_in_the_address(stack: RunningStack, acme: Speaking, way: str) -> None:
    """It cannot set headers."""
    async with dial(stack, query=way + acme.tenant.key) as connection:
        await say(connection, acme.ask("Hello."), "c")
        assert kinds(await hear(connection, "c")) == ["chunk", "done"]


async def test_a_wrong_key_is_refused_before_the_upgrade(stack: RunningStack, make_tenant: MakeTenant) -> None:
    """With a status, which clients look at, and a reason."""
    cannot_speak = await make_tenant("mute", scopes=("enrol",))
    for key, status, code in ((None, 401, "unauthorized"), ("tr_no", 401, "unauthorized"), (cannot_speak.key, 403, "")):
        with pytest.raises(InvalidStatus) as caught:
            async with dial(stack, key):
                pass
        assert caught.value.response.status_code == status
        assert set(json.loads(caught.value.response.body)) == {"error_code", "title", "message", "request_id"}
        assert code in json.loads(caught.value.response.body)["error_code"]


async def test_a_key_in_the_address_opens_nothing_over_http(http: Http, acme: Speaking) -> None:
    """There a client can set headers, and addresses are written down everywhere."""
    answer = await http.get(f"/voices?api_key={acme.tenant.key}", headers={"X-API-Key": ""})
    assert answer.status_code == 401


async def test_voices_that_are_not_the_tenants_are_unknown(
    stack: RunningStack, acme: Speaking, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Another tenant's in the same words as nobody's, and the connection goes on."""
    other = await make_tenant("other")
    foreign = str(await make_voice(other.id, embedding=embed("high")))
    async with dial(stack, acme.tenant.key) as connection:
        told = []
        for voice in (foreign, "00000000-0000-4000-8000-000000000000"):
            await say(connection, acme.ask(TEXT, voice=voice), "c")
            [frame] = await hear(connection, "c")
            assert (frame["error_code"], frame["status_code"], frame["done"]) == ("voice_not_found", 404, False)
            told.append(frame["message"].replace(voice, "VOICE"))
        assert told[0] == told[1]
        await say(connection, acme.ask("Hello."), "c")
        assert kinds(await hear(connection, "c")) == ["chunk", "done"]


async def test_a_message_that_is_too_long_closes_the_connection(stack: RunningStack, acme: Speaking) -> None:
    """Ten megabytes are not read to their end (1009); what fits and is too much text is an error."""
    async with dial(stack, acme.tenant.key, max_size=None) as connection:
        await say(connection, acme.ask("word " * 4000), "c")
        [frame] = await hear(connection, "c")
        assert frame["error_code"] == "transcript_too_long"
        with pytest.raises(ConnectionClosed) as caught:
            await say(connection, acme.ask("a" * 10_000_000), "c")
            async with asyncio.timeout(20):
                await connection.recv()
    assert caught.value.rcvd is None or caught.value.rcvd.code == 1009


async def test_a_context_that_nobody_ends_gives_its_place_back(stack: RunningStack, acme: Speaking) -> None:
    """More of them than a connection holds, one after the other; each can still be ended."""
    async with dial(stack, acme.tenant.key) as connection:
        asked = acme.ask("Hi.", max_buffer_delay_ms=0, **{"continue": True})
        for number in range(16):
            await say(connection, asked, f"c{number}")
        answered = 0
        while answered < 16:
            answered += json.loads(await connection.recv())["type"] == "flush_done"
        async with asyncio.timeout(20):
            while True:
                await say(connection, acme.ask("Hello."), "next")
                frames = await hear(connection, "next")
                if frames[-1]["type"] == "done":
                    break
                assert frames[-1]["error_code"] == "concurrency_limited"
                await asyncio.sleep(0.25)
        await say(connection, asked, "c0", transcript="", **{"continue": False})
        assert kinds(await hear(connection, "c0")) == ["done"]


async def test_what_was_spoken_goes_on_after_a_new_connection(stack: RunningStack, acme: Speaking) -> None:
    """A socket that drops takes its contexts along and nothing else."""
    async with dial(stack, acme.tenant.key) as connection:
        await say(connection, acme.ask(LONG), "c")
        await connection.recv()
        connection.transport.abort()
    async with dial(stack, acme.tenant.key) as connection:
        await say(connection, acme.ask("Hello."), "c")
        assert kinds(await hear(connection, "c")) == ["chunk", "done"]
