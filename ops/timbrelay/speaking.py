"""Speaks text through a relay: audio goes to a WAV file as it arrives, a line a sentence to the screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from timbrelay.client import Chunk, Client, Context, Sentence, SentenceEnd
from timbrelay.connection import ContextEvent
from timbrelay.console import Bar
from timbrelay.wav import WavWriter

_SHOWN_CHARACTERS = 48


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came of it; times in seconds."""

    sentences: int
    audio_s: float
    first_audio_s: float
    """From the first text to the first frame."""

    wall_s: float
    """From the first text to the last frame."""


class Recorder:
    """Follows one context's events: writes the audio, and prints what each sentence took."""

    def __init__(self, writer: WavWriter, bar: Bar) -> None:
        self.text = ""
        self._writer = writer
        self._bar = bar
        self._spans: dict[int, Sentence] = {}
        self._sentences = 0
        self._began = 0.0
        self._first = 0.0
        self._last = 0.0

    def begin(self, piece: str) -> None:
        """A piece of text is about to be sent."""
        self._began = self._began or time.monotonic()
        self.text += piece

    def take(self, event: ContextEvent) -> None:
        """The next event of the context."""
        if isinstance(event, Chunk):
            self._last = time.monotonic()
            self._first = self._first or self._last
            self._writer.write(event.pcm)
        elif isinstance(event, Sentence):
            self._spans[event.sentence] = event
        elif isinstance(event, SentenceEnd):
            self._sentences += 1
            span = self._spans.pop(event.sentence)
            self._bar.say(self._describe(event, self.text[span.start : span.end]))
            self._bar.advance_to(span.end, len(self.text))

    def summary(self) -> Spoken:
        """To be asked for when the context is done."""
        return Spoken(
            sentences=self._sentences,
            audio_s=self._writer.seconds,
            first_audio_s=self._first - self._began,
            wall_s=self._last - self._began,
        )

    def _describe(self, end: SentenceEnd, text: str) -> str:
        audio_s = end.samples / self._writer.sample_rate
        factor = end.total_ms / 1000 / audio_s if audio_s else 0.0
        shown = " ".join(text.split())
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[: _SHOWN_CHARACTERS - 1] + "…"
        return (
            f"{end.sentence + 1:4d}  first audio {end.first_audio_ms / 1000:5.2f} s  length {audio_s:5.2f} s  "
            f"real-time factor {factor:4.2f}  {shown}"
        )


async def speak(client: Client, voice: str, pieces: AsyncIterator[str], output: Path, bar: Bar) -> Spoken:
    """Speaks the pieces in one context. Raises RelayError or ConnectionLost; the file holds what came until then."""
    async with client.connect() as connection:
        with WavWriter(output, connection.sample_rate) as writer:
            recorder = Recorder(writer, bar)
            context = await connection.open(voice)
            feeding = asyncio.create_task(_feed(context, pieces, recorder))
            try:
                async for event in context:
                    recorder.take(event)
                await feeding
            finally:
                feeding.cancel()
            return recorder.summary()


async def _feed(context: Context, pieces: AsyncIterator[str], recorder: Recorder) -> None:
    try:
        async for piece in pieces:
            recorder.begin(piece)
            await context.send(piece)
    except BaseException:
        # Without its end the context would wait for more text.
        await context.cancel()
        raise
    await context.end()
