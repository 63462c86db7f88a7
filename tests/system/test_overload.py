"""More listeners than the workers carry: newcomers are told so at once, and nobody who listens notices."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.conftest import DEADLINE_S
from tests.system.conftest import LONG_SENTENCE, SPEECH, Heard, MakeSpeaker, hear
from timbrelay.client import Chunk, Context, RelayError

TEXT = f"{LONG_SENTENCE}. " * 4


async def _listen(context: Context, begun: asyncio.Event) -> Heard:
    def note(_: Chunk) -> None:
        begun.set()

    return await hear(context, note)


async def test_newcomers_are_refused_while_those_who_listen_hear_everything(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Workers that carry two streams: a third is refused with a time to come back, until one of the two has gone."""
    stack = start_stack(only=SPEECH, worker_capacity=2)
    speaker = await make_speaker(stack, "acme", "low")
    undisturbed = await speaker.speak(TEXT)
    async with contextlib.AsyncExitStack() as life:
        lives = [await life.enter_async_context(contextlib.AsyncExitStack()) for _ in range(2)]
        connections = [await one.enter_async_context(speaker.client.connect()) for one in lives]
        newcomer = await life.enter_async_context(speaker.client.connect())
        contexts = [await connection.open(speaker.voice) for connection in connections]
        begun = [asyncio.Event() for _ in contexts]
        hearing = [asyncio.create_task(_listen(*pair)) for pair in zip(contexts, begun, strict=True)]
        for context in contexts:
            await context.send(TEXT)
            await context.end()
        async with asyncio.timeout(DEADLINE_S):
            for event in begun:
                await event.wait()
        for _ in range(20):
            with pytest.raises(RelayError) as caught:
                await newcomer.open(speaker.voice)
            assert (caught.value.code, caught.value.retryable) == ("overloaded", True)
            assert (caught.value.retry_after_ms or 0) > 0
        for heard in await asyncio.gather(*hearing):
            heard.check_order()
            assert heard.pcm == undisturbed.pcm
        await lives[0].aclose()
        context = await _open_when_possible(newcomer, speaker.voice)
        await context.send(TEXT)
        await context.end()
        assert (await hear(context)).pcm == undisturbed.pcm
    figures = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text
    assert "timbrelay_capacity_streams 2.0" in figures
    assert "timbrelay_contexts_refused_total" in figures


async def _open_when_possible(connection: Any, voice: str) -> Context:
    """As a client does it: again whenever the relay says."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                opened: Context = await connection.open(voice)
            except RelayError as error:
                await asyncio.sleep((error.retry_after_ms or 0) / 1000)
            else:
                return opened
