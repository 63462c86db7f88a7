"""One service behind every door: the same samples, the same gate, the same walls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.conftest import SPEECH, MakeSpeaker
from tests.system.doors import DOORS, Ask, Refusal

TEXT = "The same words, whoever asks. They cost $3.50, as ever."
OTHER_TEXT = "Quite another text, which somebody else wants to hear at the same time."


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
