"""Nothing of one context can reach another: whatever else goes on, a context sounds as it does alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.system.conftest import LONG_SENTENCE, SPEECH, Heard, MakeSpeaker, Speaker, hear
from timbrelay.client import Cancelled, Chunk, Connection

TEXTS = (
    "Good morning. It is a fine day, and I am glad to be here.",
    "The quick brown fox is here. It jumps over the lazy dog.",
    f"{LONG_SENTENCE}. That was long. This is short.",
    "One, two, three. Four and five; six... and seven is enough!",
)
SOCKETS = 6
INTERRUPTED = 3
"""Contexts of each socket that are cancelled in mid-sentence, beside those that are heard to their end."""


async def _speak(connection: Connection, speaker: Speaker, text: str, pieces: random.Random) -> Heard:
    """A text in pieces of any length."""
    context = await connection.open(speaker.voice)
    while text:
        length = pieces.randint(1, 30)
        await context.send(text[:length])
        text = text[length:]
    await context.end()
    return await hear(context)


async def _interrupt(connection: Connection, speaker: Speaker, after: int) -> None:
    """Begin to speak, and stop after some chunks."""
    context = await connection.open(speaker.voice)
    await context.send(f"{LONG_SENTENCE}. " * 3)
    heard, last = 0, None
    async for event in context:
        heard, last = heard + isinstance(event, Chunk), event
        if heard == after:
            heard = after + 1
            await context.cancel()
    assert isinstance(last, Cancelled)


async def test_every_context_sounds_as_it_does_alone(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Twelve contexts at once, of three tenants in two voices on six sockets, with interruptions in between."""
    stack = start_stack(only=SPEECH)
    speakers = [await make_speaker(stack, tenant, s) for tenant, s in (("a", "low"), ("b", "high"), ("c", "low"))]
    alone = {(s.voice, text): (await s.speak(text)).pcm for s in speakers for text in TEXTS}
    for text in TEXTS:
        # The same reference recording is the same voice, whosever it is.
        low, high, other = (alone[speaker.voice, text] for speaker in speakers)
        assert low == other != high

    async def use(number: int) -> None:
        speaker, source = speakers[number % len(speakers)], random.Random(number)
        texts = source.sample(TEXTS, 2)
        async with speaker.client.connect() as connection:
            interrupting = asyncio.create_task(_interrupt_all(connection, speaker, source))
            heard = await asyncio.gather(*(_speak(connection, speaker, text, source) for text in texts))
            await interrupting
        for text, context in zip(texts, heard, strict=True):
            context.check_order()
            assert context.pcm == alone[speaker.voice, text], (number, text)

    await asyncio.gather(*map(use, range(SOCKETS)))


async def _interrupt_all(connection: Connection, speaker: Speaker, source: random.Random) -> None:
    for _ in range(INTERRUPTED):
        await _interrupt(connection, speaker, source.randint(1, 4))
