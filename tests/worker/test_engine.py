"""worker.engine: the thread that steps all sentences, with the bundle in service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.engine import Engine, Request, Stream
from worker.errors import NonFinite, NothingToSay
from worker.scheduling import Limits
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.speech import SpeechModel

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "base"
TEXT = "The first sound leaves before the sentence is finished."


@cache
def _model() -> SpeechModel:
    return SpeechModel(Bundle.load(BUNDLE))


def _voice(seed: int = 0) -> NDArray[np.float32]:
    vector = np.abs(np.random.default_rng(seed).standard_normal(256)).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


@cache
def _alone(text: str, seed: int) -> bytes:
    speech, pcm = _model().start(text, _voice(seed)), b""
    while True:
        chunk = speech.next_chunk()
        pcm += chunk.pcm
        if chunk.last:
            return pcm


@asynccontextmanager
async def _serving(limits: Limits | None = None) -> AsyncIterator[Engine]:
    engine = Engine(_model(), limits or Limits(run_ahead_s=60.0))
    serve = asyncio.create_task(engine.serve())
    try:
        yield engine
    finally:
        serve.cancel()
        await asyncio.gather(serve, return_exceptions=True)


def _request(name: str, text: str = TEXT, seed: int = 0, needed_in: float = 0.0) -> Request:
    return Request(name, 0, text, _voice(seed), time.monotonic() + needed_in)


async def _hear(stream: Stream) -> bytes:
    pcm = b""
    with stream:
        while True:
            sound = await asyncio.wait_for(stream.next(), 60)
            stream.note_published()
            pcm += sound.chunk.pcm
            assert sound.computed_s > 0
            if sound.chunk.last:
                return pcm


async def test_sentences_side_by_side_are_what_each_is_alone() -> None:
    """Six sentences in three voices, begun at once: each is bit for bit what it is alone."""
    async with _serving() as engine:
        asked = [(text, seed) for text in (TEXT, "Yes.") for seed in range(3)]
        streams = await asyncio.gather(
            *(engine.start(_request(f"c{number}", *what)) for number, what in enumerate(asked))
        )
        assert engine.listeners == 6
        assert await asyncio.gather(*map(_hear, streams)) == [_alone(*what) for what in asked]
        assert engine.listeners == 0


async def test_whoever_leaves_is_not_computed_any_further() -> None:
    """A sentence that was left is in no later step, and the others go on."""
    async with _serving() as engine:
        gone, stays = await asyncio.gather(engine.start(_request("a")), engine.start(_request("b")))
        with gone:
            await asyncio.wait_for(gone.next(), 60)
        assert engine.listeners == 1
        assert await _hear(stays) == _alone(TEXT, 0)
        assert gone.pending <= 3


async def test_nobody_is_computed_further_ahead_than_the_bound() -> None:
    """A stream whose listener has enough waits, though nobody else is there, until time has passed."""
    async with _serving(Limits(run_ahead_s=0.4)) as engine:
        began = time.monotonic()
        pcm = await _hear(await engine.start(_request("a")))
        seconds = len(pcm) / 2 / 24_000
        assert time.monotonic() - began > seconds - 0.4 - 0.2
        assert pcm == _alone(TEXT, 0)


async def test_a_worker_that_stops_waits_for_no_listener() -> None:
    """In a hurry the rest of a sentence is computed at once, however far ahead that is."""
    async with _serving(Limits(run_ahead_s=0.2)) as engine:
        stream = await engine.start(_request("a", needed_in=3600.0))
        assert engine.listeners == 1
        engine.hurry()
        assert await _hear(stream) == _alone(TEXT, 0)


async def test_what_is_not_published_holds_its_stream_back() -> None:
    """With Redis away chunks do not pile up: the stream stops at a handful, and goes on when they have left."""
    async with _serving() as engine:
        held, other = await engine.start(_request("a")), await engine.start(_request("b"))
        with held:
            await _hear(other)
            assert held.pending <= 10
            for _ in range(held.pending):
                await held.next()
                held.note_published()
            await asyncio.wait_for(held.next(), 60)


async def test_a_text_without_a_sound_and_a_voice_without_numbers_are_told() -> None:
    """What cannot be begun raises at once, and the engine goes on."""
    async with _serving() as engine:
        with pytest.raises(NothingToSay):
            await engine.start(_request("a", "..."))
        with pytest.raises(NonFinite):
            await engine.start(Request("b", 0, TEXT, np.full(256, np.nan, np.float32), time.monotonic()))
        assert await _hear(await engine.start(_request("c"))) == _alone(TEXT, 0)


async def test_it_says_what_it_can_carry() -> None:
    """Warm, it promises some listeners, and it knows what share of the time it computed."""
    engine = Engine(_model(), Limits())
    await asyncio.to_thread(engine.warm_up)
    assert engine.capacity > 0
    assert 0.0 <= engine.busy_share() <= 1.0
