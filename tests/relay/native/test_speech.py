"""What a client hears of a running relay and worker when it asks for formats, speeds, words and mel frames."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from relay.audio.encoding import make_encoder
from relay.audio.formats import parse_format
from relay.native.frames import HEADER, MEL, MEL_FRAME_BYTES
from storage.settings import Settings
from tests.conftest import MakeTenant, MakeVoice, RunningStack, Tenant
from tests.relay.conftest import EMBEDDING
from tests.relay.native.ears import Ear, listen, share_speech
from tests.relay.sharing import Shared
from timbrelay.stack.servers import Servers

TEXT = "**Good** morning—everybody. It's half past ten, and we have $5. Thank you for coming here today!"


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    with share_speech(servers, clean_variables, tmp_path_factory.mktemp("shared")) as lent:
        yield lent


@pytest.fixture
def settings(shared: Shared) -> Settings:
    return shared.settings


@pytest.fixture
def stack(shared: Shared) -> RunningStack:
    return shared.stack


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> Tenant:
    return await make_tenant("acme")


@pytest.fixture
async def voice(tenant: Tenant, make_voice: MakeVoice) -> UUID:
    return await make_voice(tenant.id, embedding=EMBEDDING)


async def speak(stack: RunningStack, key: str, voice: UUID, **wishes: Any) -> Ear:
    async with listen(stack, key) as ear:
        await ear.speak(voice, TEXT, **wishes)
        await ear.until("done")
    return ear


async def test_four_formats_at_once_are_each_what_its_encoder_makes(
    stack: RunningStack, tenant: Tenant, voice: UUID
) -> None:
    """Contexts side by side on one connection, each with an encoder of its own behind the same samples."""
    names = ["ulaw_8000", "mp3_24000_64", "wav_16000", "pcm_24000"]
    async with listen(stack, tenant.key) as ear:
        await asyncio.gather(*(ear.speak(voice, TEXT, name, format=name) for name in names))
        dones = [await ear.until("done") for _ in names]
    plain = [frame for _, frame in ear.frames["pcm_24000"]]
    assert {done["samples"] for done in dones} == {len(b"".join(plain)) // 2}
    rests = {ear.names[HEADER.unpack(frame[:16])[3]]: frame[16:] for frame in ear.others}
    for name in names:
        encoder = make_encoder(parse_format(name))
        assert ear.pcm(name) + rests.get(name, b"") == b"".join(map(encoder.encode, plain)) + encoder.finish()
        assert [place for place, _ in ear.frames[name]] == [place for place, _ in ear.frames["pcm_24000"]]


async def test_words_are_told_as_they_were_written_within_the_audio(
    stack: RunningStack, tenant: Tenant, voice: UUID
) -> None:
    """Each once, in order, and at twice the speed at half the time."""
    heard = [await speak(stack, tenant.key, voice, speed=speed) for speed in (1.0, 2.0)]
    told = [[word for m in ear.messages if m["type"] == "words" for word in m["words"]] for ear in heard]
    for words in told:
        assert [word["text"] for word in words] == [TEXT[word["start"] : word["end"]] for word in words]
        assert "".join(word["text"] for word in words) == TEXT.replace(" ", "")
        assert all(left["end_ms"] <= right["start_ms"] for left, right in pairwise(words))
        assert all(word["start_ms"] <= word["end_ms"] for word in words)
    seconds = len(heard[0].pcm()) / 2 / 24_000
    assert 0 < told[0][-1]["end_ms"] <= 1000 * seconds
    for slow, fast in zip(*told, strict=True):
        assert abs(slow["start_ms"] - 2 * fast["start_ms"]) <= 2
    fast_bytes = len(heard[1].pcm()) + sum(len(frame) - 16 for frame in heard[1].others)
    assert abs(fast_bytes - len(heard[0].pcm()) / 2) <= 4


async def test_mel_frames_come_with_the_audio_that_they_were(stack: RunningStack, tenant: Tenant, voice: UUID) -> None:
    """In order, before their chunk; together about as long as the audio, which is the same without them."""
    plain, ear = [await speak(stack, tenant.key, voice, mel=mel) for mel in (False, True)]
    assert plain.others == []
    assert plain.frames == ear.frames
    assert ear.others
    places = [HEADER.unpack(frame[:16])[4:6] for frame in ear.others]
    assert places == sorted(set(places))
    for frame in ear.others:
        _, flags, count, _, _, _ = HEADER.unpack(frame[:16])
        assert flags & MEL
        assert len(frame) - 16 == count * MEL_FRAME_BYTES
    frames = sum(len(frame) - 16 for frame in ear.others) // MEL_FRAME_BYTES
    seconds = len(ear.pcm()) / 2 / 24_000
    assert 50 < frames / seconds < 120


async def test_a_flush_is_answered_when_it_is_spoken(stack: RunningStack, tenant: Tenant, voice: UUID) -> None:
    """After the last chunk of what was there, also when nothing was."""
    async with listen(stack, tenant.key) as ear:
        await ear.say("open", voice=str(voice))
        await ear.say("flush")
        assert (await ear.until("flushed"))["flush"] == 0
        await ear.say("text", text="Half of")
        await ear.say("flush")
        assert (await ear.until("flushed"))["flush"] == 1
        assert ear.kinds()[-2:] == ["sentence_end", "flushed"]
        await ear.say("text", text=" a sentence")
        await ear.say("end")
        await ear.until("done")


async def test_pings_are_answered(stack: RunningStack, tenant: Tenant) -> None:
    """By clients that keep connections alive themselves (RFC 6455, section 5.5.2)."""
    async with listen(stack, tenant.key) as ear:
        assert await (await ear.connection.ping(b"are you there?")) > 0
