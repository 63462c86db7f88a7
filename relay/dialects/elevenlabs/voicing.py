"""The way of one context's audio to its client: encoded, and aligned with the text."""

from __future__ import annotations

from relay.audio.encoding import make_encoder
from relay.audio.formats import Format
from relay.dialects.elevenlabs.alignment import Aligner, Tile
from relay.speaking.events import BYTES_PER_SAMPLE, SAMPLE_RATE, Audio


class Voicing:
    """An encoder and an aligner that agree on the speed."""

    def __init__(self, format: Format, speed: float, *, closing_space: bool) -> None:
        self._encoder = make_encoder(format, speed=speed)
        self._speed = speed
        self.aligner = Aligner(speed=speed, closing_space=closing_space)

    def take(self, audio: Audio) -> tuple[bytes, Tile | None]:
        """A chunk: the bytes that are final by now, and the characters that are."""
        return self._encoder.encode(audio.pcm), self.aligner.take(audio)

    def pause(self, seconds: float) -> bytes:
        """Silence between what was spoken and what comes."""
        self.aligner.pause(seconds)
        return self._encoder.encode(bytes(BYTES_PER_SAMPLE * round(SAMPLE_RATE * self._speed * seconds)))

    def finish(self) -> tuple[bytes, Tile | None]:
        """What is left when all was spoken."""
        return self._encoder.finish(), self.aligner.rest()
