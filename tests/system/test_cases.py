"""What has gone wrong with other services of this kind, tried at every door of this one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx2
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from storage.settings import Settings
from tests.conftest import DEADLINE_S, MakeTenant, MakeVoice, RunningStack, StartStack, wait_until
from tests.relay.audio.listening import decode
from tests.relay.sharing import Shared, share
from tests.relay.webrtc.listening import connect_whep
from tests.system.conftest import LONG_SENTENCE, SPEECH, embed
from tests.system.doors import DOORS, Ask, Refusal, hear_native
from tests.system.voicings import (
    SOCKETS,
    TIMED,
    VOICINGS,
    Message,
    Voicing,
    generate,
    open_cartesia,
    open_elevenlabs,
    open_native,
    post,
    say,
)
from timbrelay.stack.servers import Servers

LONG_TEXT = f"{LONG_SENTENCE}. " * 20
RATE = 24_000


def start_roomy(start_stack: StartStack) -> RunningStack:
    """With the whole of a long text synthesized ahead of its listener."""
    return start_stack(only=SPEECH, run_ahead_ms=600_000, webrtc_loopback=True)


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    with share(servers, clean_variables, tmp_path_factory.mktemp("cases"), start_roomy) as lent:
        yield lent


@pytest.fixture
def settings(shared: Shared) -> Settings:
    """Those of the module's relay."""
    shared.empty()
    return shared.settings


@pytest.fixture
async def ask(shared: Shared, make_tenant: MakeTenant, make_voice: MakeVoice) -> Ask:
    """A tenant with a voice and a text."""
    tenant = await make_tenant("acme")
    voice = str(await make_voice(tenant.id, embedding=embed("low")))
    return Ask(shared.stack.relay_url, tenant.key, voice, "Thank you for calling.")


def gauge(stack: RunningStack, name: str) -> float:
    """A figure of the relay."""
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def with_text(ask: Ask, text: str) -> Ask:
    """The same, for another text."""
    return Ask(ask.url, ask.key, ask.voice, text)


async def until(socket: ClientConnection, wanted: Callable[[Message], bool]) -> Message:
    """The next message that is wanted; frames are passed over."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            raw = await socket.recv()
            if isinstance(raw, str) and wanted(message := json.loads(raw)):
                return dict(message)


@pytest.mark.parametrize("text", ["Thank you for calling.", "Hello", "I.", "42", "OK!"])
async def test_short_texts_are_heard_at_every_door(ask: Ask, text: str) -> None:
    """None is swallowed as too short to be pushed as audio, nor ends in silence."""
    expected = await hear_native(with_text(ask, text))
    assert len(expected) > RATE * 2 / 10
    heard = await asyncio.gather(*(door(with_text(ask, text)) for door in DOORS.values()))
    assert [name for name, pcm in zip(DOORS, heard, strict=True) if pcm != expected] == []


@pytest.mark.parametrize("text", [" ", "🎉🎉", "你好", "...", "\x07\x1b"])
async def test_a_text_without_a_sound_has_its_reason_at_every_door(ask: Ask, text: str) -> None:
    """An error comes before any close, never a silent end or an empty success."""
    for name, door in DOORS.items():
        if name.startswith("elevenlabs ") and name != "elevenlabs http" and not text.strip():
            # There white space is how a client keeps a context alive.
            continue
        with pytest.raises(Refusal) as caught:
            await door(with_text(ask, text))
        assert "nothing" in str(caught.value.answer) or "empty" in str(caught.value.answer), (name, caught.value)


async def test_a_format_that_is_not_there_is_named_at_every_door(ask: Ask) -> None:
    """`mpeg` or an odd rate: an error with the field, never audio of another kind."""
    fields = {
        "native": "format",
        "elevenlabs multi": "output_format",
        "elevenlabs single": "output_format",
        "elevenlabs http": "output_format",
        "openai": "response_format",
        "cartesia": "output_format",
        "cartesia events": "output_format",
        "cartesia bytes": "output_format",
    }
    for name, voicing in VOICINGS.items():
        told = await voicing(ask, "mpeg_24001")
        assert told.pieces == [] and fields[name] in json.dumps(told.errors), name


@pytest.mark.parametrize("door", SOCKETS)
async def test_every_piece_of_raw_audio_is_whole_samples(ask: Ask, door: str) -> None:
    """Also where a resampler makes odd numbers of them, so that no player is given half of one."""
    told = await SOCKETS[door](with_text(ask, "One, two, three. Four."), "pcm_22050")
    assert len(told.pieces) > 5
    assert [len(piece) for piece in told.pieces if len(piece) % 2] == []


@pytest.mark.parametrize("text", ["Hello", "A stream that is cut off at its end is noticed by everybody who listens."])
async def test_mp3_is_whole_at_every_door(ask: Ask, text: str) -> None:
    """It decodes to its end, as long as the samples, and its last words are there."""
    plain = np.frombuffer(await hear_native(with_text(ask, text)), "<i2")
    doors = {name: voicing for name, voicing in VOICINGS.items() if name not in ("cartesia", "cartesia events")}
    told = await asyncio.gather(*(voicing(with_text(ask, text), "mp3_24000_64") for voicing in doors.values()))
    for name, one in zip(doors, told, strict=True):
        rate, samples = decode(one.audio, container="mp3")
        assert rate == RATE and one.errors == [], name
        # An encoder's lead and the filling of its last frames.
        assert len(plain) <= len(samples) <= len(plain) + 6 * 1152, name
        loud = np.flatnonzero(np.abs(samples) > 0.01)
        spoken = np.flatnonzero(np.abs(plain.astype(np.float64)) > 0.01 * 2**15)
        assert abs((loud[-1] - loud[0]) - (spoken[-1] - spoken[0])) < RATE / 10, name


TIMED_TEXT = "It costs $3.50, as ever. 你好 to Zoë and O'Brien! 🎉 Then comes more; and the end."


@pytest.mark.parametrize("door", TIMED)
async def test_words_come_once_in_their_own_spelling_at_times_that_rise(ask: Ask, door: str) -> None:
    """Figures are not spelt out, nothing is romanised, no sentence starts the clock again."""
    told = await TIMED[door](with_text(ask, TIMED_TEXT), "pcm_24000")
    spelt = [text for text, _, _ in told.words]
    expected = TIMED_TEXT.split()
    # What has no sound may have no time.
    assert [word for word in spelt if word not in ("你好", "🎉")] == [w for w in expected if w not in ("你好", "🎉")]
    times = [time for _, start, end in told.words for time in (start, end)]
    assert times == sorted(times)
    assert times[-1] <= len(told.audio) / 2 / RATE + 0.001


@pytest.mark.timeout(150)
async def test_times_do_not_drift_in_more_than_a_minute(ask: Ask) -> None:
    """Every word of forty equal sentences is heard as long after its sentence's beginning as in the first."""
    sentence = "The weather is fine today. "
    long = with_text(ask, (sentence * 40).strip())
    alone = await hear_native(with_text(ask, sentence.strip()))
    doors: dict[str, Voicing] = {name: TIMED[name] for name in ("native", "elevenlabs multi", "cartesia")}
    told = await asyncio.gather(*(voicing(long, "pcm_24000") for voicing in doors.values()))
    for name, one in zip(doors, told, strict=True):
        assert len(one.audio) > 60 * 2 * RATE, name
        assert len(one.words) == 40 * 5, name
        period = len(one.audio) / 2 / RATE / 40
        assert period == pytest.approx(len(alone) / 2 / RATE, abs=0.2), name
        begins = [start for text, start, _ in one.words if text == "The"]
        assert begins[-1] - begins[0] == pytest.approx(39 * period, abs=0.06), name


async def _ask_for_an_unknown_voice(ask: Ask) -> dict[str, Message]:
    nobody = Ask(ask.url, ask.key, "nobody", ask.text)
    async with open_native(ask) as socket:
        await say(socket, type="open", context="mine", voice="nobody")
        native = await until(socket, lambda message: message["type"] == "error")
    async with open_cartesia(ask) as socket:
        await say(socket, **generate(nobody, "mine", ask.text))
        cartesia = await until(socket, lambda message: message["type"] == "error")
    async with open_elevenlabs(ask) as socket:
        await say(socket, text="🎉 ", context_id="mine", flush=True)
        await say(socket, context_id="mine", close_context=True)
        elevenlabs = await until(socket, lambda message: bool(message.get("error")))
    return {"native": native, "cartesia": cartesia, "elevenlabs": elevenlabs}


async def test_an_error_names_the_context_it_is_about(ask: Ask) -> None:
    """With it a client of many contexts knows which of its users to tell."""
    errors = await _ask_for_an_unknown_voice(ask)
    assert errors["native"]["context"] == "mine"
    assert errors["cartesia"]["context_id"] == "mine"
    assert errors["elevenlabs"]["context_id"] == errors["elevenlabs"]["contextId"] == "mine"


async def test_what_is_said_of_unknown_contexts_opens_none(ask: Ask, shared: Shared) -> None:
    """Flushes, ends and cancels of contexts that never were, at every socket, leave no place taken."""
    async with open_native(ask) as native, open_elevenlabs(ask) as elevenlabs, open_cartesia(ask) as cartesia:
        for number in range(10):
            for kind in ("flush", "end", "cancel"):
                await say(native, type=kind, context=f"c{number}")
            await say(elevenlabs, context_id=f"c{number}", flush=True)
            await say(elevenlabs, context_id=f"c{number}", text="", flush=True)
            await say(elevenlabs, context_id=f"c{number}", close_context=True)
            await say(cartesia, **generate(ask, f"c{number}", "", more=True, flush=True))
            await say(cartesia, context_id=f"c{number}", cancel=True)
        # What is answered after them shows that they have been heard.
        await say(native, type="open", context="c", voice="nobody")
        await until(native, lambda message: message.get("code") == "unknown_voice")
        await say(elevenlabs, text=7, context_id="c")
        await until(elevenlabs, lambda message: bool(message.get("error")))
        await say(cartesia, context_id="c")
        await until(cartesia, lambda message: message["type"] == "error" and message["context_id"] == "c")
        assert gauge(shared.stack, "timbrelay_contexts") == 0


def _side_doors(ask: Ask) -> dict[str, tuple[str, Message]]:
    elevenlabs, body = f"/elevenlabs/v1/text-to-speech/{ask.voice}", {"text": ask.text}
    return {
        "whole": (elevenlabs, body),
        "timed": (f"{elevenlabs}/with-timestamps", body),
        "timed stream": (f"{elevenlabs}/stream/with-timestamps", body),
        "events": ("/cartesia/tts/sse", generate(ask, "c", ask.text)),
    }


@pytest.mark.timeout(120)
async def test_no_side_door_leads_around_the_gate(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """With the one place taken every way to speak is refused with a time to come back, WebRTC too; then all have it."""
    stack = start_stack(only=SPEECH, max_contexts=1, webrtc_loopback=True)
    tenant = await make_tenant("acme")
    voice = str(await make_voice(tenant.id, embedding=embed("low")))
    ask = Ask(stack.relay_url, tenant.key, voice, "Hello there.")
    headers = {"Authorization": f"Bearer {ask.key}"}
    async with (
        httpx2.AsyncClient(base_url=ask.url, headers=headers, timeout=DEADLINE_S) as http,
        connect_whep(http) as peer,
        open_native(ask) as holder,
    ):
        await peer.until_connected()
        await say(holder, type="open", context="c", voice=voice)
        await until(holder, lambda message: message["type"] == "opened")
        for name, (path, body) in _side_doors(ask).items():
            refused = await post(ask, path, body)
            assert refused.status_code in (429, 503) and int(refused.headers["retry-after"]) > 0, (name, refused.text)
        peer.open(voice)
        told = await peer.messages.get()
        while told["type"] == "hello":
            told = await peer.messages.get()
        assert (told["type"], told["code"], told["retryable"]) == ("error", "overloaded", True)
        await say(holder, type="cancel", context="c")
        await until(holder, lambda message: message["type"] == "cancelled")
        for name, (path, body) in _side_doors(ask).items():
            assert (await post(ask, path, body)).is_success, name
        await _interrupt_everywhere(ask)
    await asyncio.to_thread(wait_until, lambda: gauge(stack, "timbrelay_contexts") == 0)


async def _interrupt_everywhere(ask: Ask) -> None:
    """With one place in all, a turn that is cut off has to have given it back when the next begins."""
    async with open_native(ask) as socket:
        for number in range(10):
            await say(socket, type="open", context=f"c{number}", voice=ask.voice)
            await say(socket, type="text", context=f"c{number}", text=LONG_TEXT)
            await until(socket, lambda message: message["type"] in ("sentence", "error"))
            await say(socket, type="cancel", context=f"c{number}")
            await until(socket, lambda message: message["type"] == "cancelled")
    async with open_cartesia(ask) as socket:
        for number in range(10):
            await say(socket, **generate(ask, f"c{number}", LONG_TEXT, more=True))
            first = await until(socket, _is_of(f"c{number}"))
            assert first["type"] != "error", first
            await say(socket, context_id=f"c{number}", cancel=True)
    async with open_elevenlabs(ask) as socket:
        for number in range(10):
            await say(socket, context_id=f"c{number}", text=LONG_TEXT)
            first = await until(socket, _is_of(f"c{number}"))
            assert not first.get("error"), first
            await say(socket, context_id=f"c{number}", close_context=True)


def _is_of(context: str) -> Callable[[Message], bool]:
    return lambda message: message["context_id"] == context
