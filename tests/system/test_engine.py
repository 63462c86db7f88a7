"""What a worker does with many sentences at once, and with bad input, in the running whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx2
import numpy as np
import pytest

from tests.conftest import DEADLINE_S, MakeVoice, wait_until
from tests.system.conftest import LONG_SENTENCE, SPEECH, Heard, MakeSpeaker, hear
from timbrelay.client import Chunk, RelayError

TEXTS = [f"{LONG_SENTENCE}.", "Yes.", "What time is it over there right now?", "A cup of tea, please. And then?"]


def _figures(stack: Any) -> str:
    text: str = httpx2.get(f"{stack.metrics_urls['worker']}/metrics").text
    return text


async def test_in_a_crowd_each_hears_what_he_would_hear_alone(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Twelve listeners in two voices at once, four of whom hang up in the middle: bit for bit the undisturbed runs."""
    stack = start_stack(only=SPEECH)
    speakers = [await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")]
    alone = {(s.voice, text): (await s.speak(text)).pcm for s in speakers for text in TEXTS}

    async def hang_up(number: int) -> None:
        async with speakers[number % 2].client.connect() as connection:
            context = await connection.open(speakers[number % 2].voice)
            await context.send(f"{LONG_SENTENCE}. ")
            async for event in context:
                if isinstance(event, Chunk) and event.number == number:
                    await context.cancel()

    asked = [(speaker, text) for speaker in speakers for text in TEXTS]
    *heard, _, _, _, _ = await asyncio.gather(
        *(speaker.speak(text) for speaker, text in asked), *(hang_up(number) for number in range(4))
    )
    for (speaker, text), found in zip(asked, heard, strict=True):
        assert isinstance(found, Heard)
        found.check_order()
        assert found.pcm == alone[speaker.voice, text]
    assert "timbrelay_worker_batch_rows_count" in _figures(stack)


async def test_a_deleted_voice_stops_in_mid_sentence(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Less than a second of it follows, then an error says why; the other voice speaks on."""
    # Hardly ahead of the listener, the sentence lasts as long as it sounds.
    stack = start_stack(only=SPEECH, run_ahead_ms=200)
    speaker, other = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    undisturbed = await other.speak(TEXTS[0])
    went_on = asyncio.create_task(other.speak(TEXTS[0]))
    followed = 0
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        await context.send(f"{LONG_SENTENCE}. ")
        with pytest.raises(RelayError) as caught:
            async for event in context:
                if isinstance(event, Chunk) and event.number == 2:
                    await speaker.client.delete_voice(speaker.voice)
                    deleted_at = time.monotonic()
                elif isinstance(event, Chunk) and event.number > 2:
                    followed += time.monotonic() > deleted_at
    assert caught.value.code == "voice_unavailable"
    assert followed <= 12
    assert (await went_on).pcm == undisturbed.pcm
    assert "timbrelay_worker_revoked_voices_total 1.0" in _figures(stack)


async def test_a_voice_of_no_numbers_fails_alone(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker, make_voice: MakeVoice, make_tenant: Any
) -> None:
    """Its listener is told, the worker counts it and goes on, and whoever is heard meanwhile notices nothing."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    tenant = (await make_tenant("acme")).id
    broken = str(await make_voice(UUID(str(tenant)), embedding=np.full(256, np.nan, "<f4").tobytes()))
    undisturbed = (await speaker.speak(TEXTS[0])).pcm
    async with speaker.client.connect() as connection:
        for _ in range(3):
            context = await connection.open(broken)
            await context.send("This has no voice. ")
            going_on = asyncio.create_task(speaker.speak(TEXTS[0]))
            with pytest.raises(RelayError) as caught:
                await hear(context)
            assert caught.value.code == "synthesis_failed"
            assert (await going_on).pcm == undisturbed
    figures = _figures(stack)
    assert "timbrelay_worker_non_finite_total" in figures
    assert 'timbrelay_worker_jobs_total{outcome="failed"} 3.0' in figures


async def test_redis_away_until_both_sides_have_noticed_is_not_heard(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Workers and relays wait for it and go on where they were, each sample once."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    text = f"{LONG_SENTENCE}. " * 4
    undisturbed = await speaker.speak(text)
    stopped: list[int] = []

    def stop_once(chunk: Chunk) -> None:
        if chunk.sentence == 1 and not stopped:
            stopped.append(chunk.number)
            stack.valkey.ask_to_stop()
            assert stack.valkey.wait(DEADLINE_S)

    async def start_again() -> None:
        await asyncio.to_thread(wait_until, lambda: stopped)
        log = stack.log
        await asyncio.to_thread(wait_until, lambda: {"redis trouble", "redis is away"} <= _events(log.read_text()))
        stack.valkey.start()

    disturbed, _ = await asyncio.gather(speaker.speak(text, on_chunk=stop_once), start_again())
    disturbed.check_order()
    assert disturbed.pcm == undisturbed.pcm


def _events(log: str) -> set[str]:
    return {event for event in ("redis trouble", "redis is away") if event in log}
