"""One service behind every door: the same samples, the same gate, the same walls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from storage.database import Database
from storage.redis import connect
from storage.settings import Settings
from storage.streams.speech_log import Mark, Spoken, read_spoken
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import create_tenant
from tests.conftest import MakeTenant
from tests.system.conftest import SPEECH, MakeSpeaker
from tests.system.doors import DOORS, Ask, Refusal

TEXT = "The same words, whoever asks. They cost $3.50, as ever."
OTHER_TEXT = "Quite another text, which somebody else wants to hear at the same time."
NOTES_S = 10


async def test_every_door_gives_the_same_samples(start_stack: Callable[..., Any], make_speaker: MakeSpeaker) -> None:
    """Byte for byte what the native protocol gives, one door after the other and all of them at once."""
    stack = start_stack(only=SPEECH)
    acme, other = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    mine, theirs = (
        Ask(stack.relay_url, acme.key, acme.voice, TEXT),
        Ask(stack.relay_url, other.key, other.voice, OTHER_TEXT),
    )
    expected = {ask: await DOORS["native"](ask) for ask in (mine, theirs)}
    assert expected[mine] != expected[theirs]
    for name, door in DOORS.items():
        assert await door(mine) == expected[mine], name
    asks = [ask for ask in (mine, theirs) for _ in DOORS]
    heard = await asyncio.gather(*(door(ask) for ask, door in zip(asks, list(DOORS.values()) * 2, strict=True)))
    assert [expected[ask] == pcm for ask, pcm in zip(asks, heard, strict=True)] == [True] * len(asks)


async def test_every_door_has_the_same_gate(start_stack: Callable[..., Any], make_speaker: MakeSpeaker) -> None:
    """When the places are taken nobody gets one by another door; when one is free, everybody can have it."""
    stack = start_stack(only=SPEECH, max_contexts=1)
    speaker = await make_speaker(stack, "acme", "low")
    ask = Ask(stack.relay_url, speaker.key, speaker.voice, TEXT)
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        for name, door in DOORS.items():
            with pytest.raises(Refusal) as caught:
                await door(ask)
            assert caught.value.status in (None, 429, 503), name
        await context.cancel()
    for name, door in DOORS.items():
        assert await door(ask), name


async def test_no_door_lets_anybody_hear_a_voice_of_another_tenant(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """It does not exist for them, at whatever door they ask; nor does anything for a key that is none."""
    stack = start_stack(only=SPEECH)
    acme, other = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    for name, door in DOORS.items():
        with pytest.raises(Refusal) as caught:
            await door(Ask(stack.relay_url, acme.key, other.voice, TEXT))
        assert caught.value.status in (None, 400, 404), name


async def test_what_every_door_speaks_is_put_on_record(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker, make_tenant: MakeTenant, settings: Settings
) -> None:
    """Usage and the audit log are made of these notes: whose voice and key it was, and how much was heard."""
    stack = start_stack(only=SPEECH)
    speaker, tenant = await make_speaker(stack, "acme", "low"), (await make_tenant("acme")).id
    ask = Ask(stack.relay_url, speaker.key, speaker.voice, TEXT)
    lengths = [len(await door(ask)) for door in DOORS.values()]
    redis = connect(settings.redis_url)
    try:
        notes = await _wait_for_notes(redis, tenant, len(DOORS))
    finally:
        await redis.aclose()
    assert len({note.context for note in notes}) == len(DOORS)
    assert {note.voice for note in notes} == {UUID(speaker.voice)}
    assert len({(note.sentences, note.characters) for note in notes}) == 1
    assert sorted(note.audio_ms for note in notes) == sorted(length // 48 for length in lengths)
    assert len({note.key_id for note in notes}) == 1
    assert all(note.characters and note.text_hmac for note in notes)


async def test_no_door_is_a_way_around_a_tenant_s_limits(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker, database: Database
) -> None:
    """Requests a minute and characters a day are counted at every door."""
    async with database.transaction(operator=True) as connection:
        await create_tenant(connection, "hasty", limits=Limits(requests_per_minute=0))
        await create_tenant(connection, "chatty", limits=Limits(characters_per_day=len(TEXT) // 2))
    stack = start_stack(only=SPEECH)
    for tenant, word in (("hasty", "rate_limit"), ("chatty", "quota")):
        speaker = await make_speaker(stack, tenant, "low")
        for name, door in DOORS.items():
            with pytest.raises(Refusal) as caught:
                await door(Ask(stack.relay_url, speaker.key, speaker.voice, OTHER_TEXT))
            assert caught.value.status in (None, 402, 429), name
            told = _spell(caught.value.answer)
            assert word in told, (name, told)


async def _wait_for_notes(redis: Redis, tenant: UUID, number: int) -> tuple[Spoken, ...]:
    for _ in range(NOTES_S * 10):
        found = (await read_spoken(redis, tenant, Mark(), 10 * number)).entries
        if len(found) >= number:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(found)} of {number} notes within {NOTES_S} s")


def _spell(answer: Any) -> str:
    return answer.decode() if isinstance(answer, bytes | bytearray) else json.dumps(answer)
