"""From text and an embedding to chunks of speech, decoder step by decoder step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.errors import BundleError, NothingToSay
from worker.sv2tts.bundle import CHUNK_SAMPLES, EMBEDDING_SIZE, Bundle
from worker.sv2tts.synthesizer import Synthesizer
from worker.sv2tts.vocoder import Vocoder
from worker.text.phonemes import Phonemizer

FULL_SCALE = 32767
_RISE = np.linspace(0.0, 1.0, 120, endpoint=False, dtype=np.float32)
"""The first 5 ms of a sentence rise from silence: an abrupt start is a click."""


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A chunk of PCM, and whether the speech ends with it."""

    pcm: bytes
    last: bool


class Speech:
    """One sentence on its way through the models.

    `next_chunk` runs the decoder only as far as that chunk needs, so the first leaves long before the sentence is done.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        vocoder: Vocoder,
        ids: Sequence[int],
        embedding: NDArray[np.float32],
    ) -> None:
        self._utterance = synthesizer.start(ids, embedding)
        self._stream = vocoder.start()
        self._buffer = np.zeros(0, np.float32)
        self._begun = False

    @property
    def decoded(self) -> bool:
        """Whether the decoder has no step left to go."""
        return self._utterance.finished

    @property
    def pending(self) -> NDArray[np.float32]:
        """Samples that are made and not yet given, at 24 kHz."""
        return self._buffer

    def next_chunk(self) -> SpeechChunk:
        """The next 80 ms, or what is left of the sentence."""
        while not self.decoded and len(self._buffer) <= CHUNK_SAMPLES:
            mel = self._utterance.step()
            self._buffer = np.concatenate([self._buffer, self._stream.push(mel, final=self._utterance.finished)])
        ready, self._buffer = self._buffer[:CHUNK_SAMPLES], self._buffer[CHUNK_SAMPLES:]
        if not self._begun:
            ready[: len(_RISE)] *= _RISE[: len(ready)]
            self._begun = True
        return SpeechChunk(_to_pcm(ready), last=self.decoded and not len(self._buffer))


class SpeechModel:
    """A loaded bundle that speaks; one object serves any number of threads.

    `lexicon` is a file of pronunciations (see worker.text.lexicon); a bad one raises LexiconError.
    """

    def __init__(self, bundle: Bundle, *, threads: int = 1, lexicon: Path | None = None) -> None:
        self._bundle = bundle
        self._phonemizer = Phonemizer(lexicon)
        self._synthesizer = Synthesizer(bundle, threads=threads)
        self._vocoder = Vocoder(bundle, threads=threads)

    def start(self, text: str, embedding: NDArray[np.float32]) -> Speech:
        """Begin a sentence in the voice of `embedding` (float32[256], unit norm); raises NothingToSay."""
        ids = self._phonemizer.ids(text)
        if not ids:
            raise NothingToSay
        return Speech(self._synthesizer, self._vocoder, ids, embedding)

    def warm_up(self) -> None:
        """Speak once into the void: the first run of a session allocates what later runs use again.

        Raises BundleError when what comes is no sound: sane weights may still add up to none.
        """
        embedding = np.full(EMBEDDING_SIZE, EMBEDDING_SIZE**-0.5, np.float32)
        speech = self.start("Ready when you are.", embedding)
        while not speech.next_chunk().last:
            if not np.isfinite(speech.pending).all():
                raise BundleError(self._bundle.root, "what it says is not finite", "export it again from sane weights")


def _to_pcm(samples: NDArray[np.float32]) -> bytes:
    """Mono float in [-1, 1] to signed 16 bit, little-endian; what is louder is clipped."""
    return (np.clip(samples, -1.0, 1.0) * FULL_SCALE).round().astype("<i2").tobytes()
