"""From text and an embedding to chunks of speech: any number of sentences at once, decoder step by decoder step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from storage.streams.wire import Timing
from worker.backends.graph import Backend
from worker.errors import BundleError, NonFinite, NothingToSay
from worker.sv2tts.bundle import CHUNK_SAMPLES, EMBEDDING_SIZE, Bundle
from worker.sv2tts.mel import Floats
from worker.sv2tts.synthesizer import Synthesizer, Utterance
from worker.sv2tts.timing import WordClock
from worker.sv2tts.vocoder import Vocoder, VocoderStream
from worker.text.phonemes import Phonemizer
from worker.text.reading import Reading

FULL_SCALE = 32767
_RISE = np.linspace(0.0, 1.0, 120, endpoint=False, dtype=np.float32)
"""The first 5 ms of a sentence rise from silence: an abrupt start is a click."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A chunk of PCM, whether the speech ends with it, the words that are complete by now, and, where they were asked
    for, the mel frames decoded since the chunk before (little-endian float16 [T, 80])."""

    pcm: bytes
    last: bool
    words: tuple[Timing, ...] = ()
    mel: bytes = b""


@dataclass(frozen=True, slots=True)
class Round:
    """What one step of a batch gave: for each sentence its new chunks, or the error that ended it."""

    outcomes: tuple[tuple[SpeechChunk, ...] | Exception, ...]
    decode_s: float
    vocode_s: float


class Speech:
    """One sentence on its way through the models.

    `next_chunk` runs the decoder only as far as that chunk needs, so the first leaves long before the sentence is done.
    """

    def __init__(
        self, model: SpeechModel, utterance: Utterance, stream: VocoderStream, clock: WordClock, *, mel: bool
    ) -> None:
        self._model = model
        self.utterance = utterance
        self.stream = stream
        self._clock = clock
        self._chunk_samples = model.chunk_samples
        self._buffer = np.zeros(0, np.float32)
        self._begun = False
        self._sent = 0
        self._frames: list[Floats] | None = [] if mel else None
        self._ready: deque[SpeechChunk] = deque()

    @property
    def decoded(self) -> bool:
        """Whether the decoder has no step left to go."""
        return self.utterance.finished

    @property
    def cut(self) -> bool:
        """Whether the sentence would not have stopped by itself."""
        return self.utterance.cut

    def next_chunk(self) -> SpeechChunk:
        """The next chunk, or what is left of the sentence; raises what the models do."""
        while not self._ready:
            (outcome,) = self._model.advance([self]).outcomes
            if isinstance(outcome, Exception):
                raise outcome
            self._ready.extend(outcome)
        return self._ready.popleft()

    def take(self, mel: Floats) -> None:
        """The frames of a step, on their way to the vocoder and, if they were asked for, to the listener."""
        self.stream.accept(mel, final=self.decoded)
        if self._frames is not None:
            self._frames.append(mel)

    def add(self, samples: Floats) -> tuple[SpeechChunk, ...]:
        """Take the samples of a step; the chunks that are whole by now, with the last sample all that are left."""
        if not self._begun and len(samples):
            samples[: len(_RISE)] *= _RISE[: len(samples)]
            self._begun = True
        self._buffer = np.concatenate([self._buffer, samples])
        chunks = []
        # A chunk leaves when there is more to follow: the last one must say that it is.
        while len(self._buffer) > self._chunk_samples:
            chunks.append(self._make_chunk(self._buffer[: self._chunk_samples], last=False))
            self._buffer = self._buffer[self._chunk_samples :]
        if self.decoded:
            chunks.append(self._make_chunk(self._buffer, last=True))
        return tuple(chunks)

    def _make_chunk(self, samples: Floats, last: bool) -> SpeechChunk:
        self._sent += len(samples)
        mel = b""
        if self._frames:
            mel = np.concatenate(self._frames).astype("<f2").tobytes()
            self._frames.clear()
        return SpeechChunk(_to_pcm(samples), last, self._clock.tell(self._sent, last), mel)


class SpeechModel:
    """A loaded bundle that speaks. Sentences may be started by one thread while another one advances them.

    `lexicon` is a file of pronunciations (see worker.text.lexicon); a bad one raises LexiconError.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        backend: Backend | None = None,
        lexicon: Path | None = None,
        chunk_samples: int = CHUNK_SAMPLES,
    ) -> None:
        self._bundle = bundle
        self._phonemizer = Phonemizer(lexicon)
        self._synthesizer = Synthesizer(bundle, threads, backend)
        self._vocoder = Vocoder(bundle, threads, backend)
        self.chunk_samples = chunk_samples

    def read(self, text: str) -> Reading:
        """The phoneme ids of a sentence and where its words are in them; raises NothingToSay."""
        reading = self._phonemizer.read(text)
        if not reading.ids:
            raise NothingToSay
        return reading

    def begin(self, reading: Reading, embedding: NDArray[np.float32], *, mel: bool = False) -> Speech:
        """Begin a sentence in the voice of `embedding` (float32[256], unit norm); with `mel` its chunks carry the mel
        frames."""
        utterance = self._synthesizer.start(reading.ids, embedding)
        return Speech(self, utterance, self._vocoder.start(), WordClock(utterance, reading.words), mel=mel)

    def start(self, text: str, embedding: NDArray[np.float32], *, mel: bool = False) -> Speech:
        """Begin a sentence in the voice of `embedding`; raises NothingToSay."""
        return self.begin(self.read(text), embedding, mel=mel)

    def advance(self, speeches: Sequence[Speech]) -> Round:
        """One decoder call and the vocoder behind it for sentences that are not decoded yet.

        What a sentence gets does not depend on which others are with it; what goes wrong with one ends that one only.
        """
        started = time.perf_counter()
        frames = _isolate(speeches, self._decode)
        decoded = time.perf_counter()
        sounding = []
        for speech, mel in zip(speeches, frames, strict=True):
            if not isinstance(mel, Exception):
                speech.take(mel)
                sounding.append(speech)
        samples = iter(_isolate(sounding, self._vocode))
        outcomes = [mel if isinstance(mel, Exception) else next(samples) for mel in frames]
        chunks = (
            outcome if isinstance(outcome, Exception) else speech.add(outcome)
            for speech, outcome in zip(speeches, outcomes, strict=True)
        )
        return Round(tuple(chunks), decoded - started, time.perf_counter() - decoded)

    def warm_up(self, *rows: int, steps: int = 6) -> list[float]:
        """Speak into the void in batches of so many sentences, since the first runs of a session allocate what later
        ones use again; seconds a step of each batch takes.

        Raises BundleError when what comes is no sound: sane weights may still add up to none.
        """
        try:
            return [self._time_batch(count, steps) for count in rows or (1,)]
        except NonFinite as error:
            reason = "what it says is not finite"
            raise BundleError(self._bundle.root, reason, "export it again from sane weights") from error

    def _time_batch(self, rows: int, steps: int) -> float:
        embedding = np.full(EMBEDDING_SIZE, EMBEDDING_SIZE**-0.5, np.float32)
        speeches = [self.start("Ready when you are, and warm.", embedding) for _ in range(rows)]
        seconds = []
        for _ in range(steps):
            started = time.perf_counter()
            outcomes = self.advance(speeches).outcomes
            seconds.append(time.perf_counter() - started)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
        # The first step holds no vocoder; of the others the least disturbed one says what the machine can do.
        return min(seconds[1:])

    def _decode(self, speeches: Sequence[Speech]) -> list[Floats | Exception]:
        frames = self._synthesizer.advance([speech.utterance for speech in speeches])
        return [_checked(mel, "synthesizer") for mel in frames]

    def _vocode(self, speeches: Sequence[Speech]) -> list[Floats | Exception]:
        samples = self._vocoder.work_off([speech.stream for speech in speeches])
        return [_checked(wave, "vocoder") for wave in samples]


def _checked(numbers: Floats, stage: str) -> Floats | Exception:
    return numbers if np.isfinite(numbers).all() else NonFinite(stage)


def _isolate(
    items: Sequence[Item], call: Callable[[Sequence[Item]], list[Outcome | Exception]]
) -> list[Outcome | Exception]:
    """What the call gives for all items together; when it breaks, for each alone, so that one breaks nobody else's."""
    try:
        return call(items) if items else []
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [outcome for item in items for outcome in _isolate([item], call)]


def _to_pcm(samples: NDArray[np.float32]) -> bytes:
    """Mono float in [-1, 1] to signed 16 bit, little-endian; what is louder is clipped."""
    return (np.clip(samples, -1.0, 1.0) * FULL_SCALE).round().astype("<i2").tobytes()
