"""How far the timings of words are from what others hear: the figures of docs/timings.md.

    .venv/bin/python -m tests.worker.measure_timings [--whisper FOLDER] [--voices RECORDING ...]

Twenty sentences are spoken in the two voices of `samples/`, or in others, and compared with up to three references: the
wave itself at pauses and ends, the forced alignment of PocketSphinx where the package `pocketsphinx` is installed (its
American English model comes with it), and with `--whisper` the word times of a CTranslate2 Whisper (the `asr` extra).
An error is the first named minus the second; each reference is compared with the wave as well, for it has a bias too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from storage.streams.wire import Timing
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import ENCODER_RATE, SpeakerEncoder
from worker.sv2tts.mel import SAMPLE_RATE
from worker.sv2tts.speech import SpeechModel

ROOT = Path(__file__).resolve().parents[2]
VOICES = [ROOT / "samples" / f"reference-{name}.wav" for name in ("high", "low")]
TEXTS = """\
The first sound leaves before the sentence is finished.
Well, that is not what I wanted to hear.
She opened the heavy wooden door, and then she left.
Please call me back tomorrow morning at nine.
No, I do not think so, but thank you.
The train to Boston leaves from platform seven.
My favorite colors are red, green, and blue.
If it rains tomorrow, we will stay at home.
The price is twenty dollars for two people.
He bought three apples, two lemons, and some bread.
When I was young, my father worked on ships.
Good morning, how can I help you today?
It takes about ten minutes to walk there.
We waited for hours, but nobody came to help.
The old man sat quietly beside the river.
Yes, of course, I will send it right away.
Can you tell me where the station is?
Her sister lives in a small house near Paris.
First, open the box; second, read the manual.
Thank you for calling, and have a nice day.""".splitlines()

_STEP_MS = 5
_STEP = SAMPLE_RATE * _STEP_MS // 1000
_SILENT_DB = -40.0
_LEAST_PAUSE_MS = 60
_MARGIN_MS = 300
_HISS = 2e-4


@dataclass(frozen=True, slots=True)
class Spoken:
    """A sentence, its wave at 24 kHz and its timings."""

    text: str
    wave: NDArray[np.float32]
    words: tuple[Timing, ...]

    @property
    def edges(self) -> Edges:
        """What the timings say."""
        ours = dict(enumerate(self.words))
        return Edges({n: w.start_ms for n, w in ours.items()}, {n: w.end_ms for n, w in ours.items()})


@dataclass(frozen=True, slots=True)
class Edges:
    """Milliseconds at which words of a sentence start and end, by their numbers."""

    starts: dict[int, float]
    ends: dict[int, float]

    def less(self, others: Edges) -> Errors:
        """The errors of these against others, for the words that both have."""
        starts = [when - others.starts[word] for word, when in self.starts.items() if word in others.starts]
        return Errors(starts, [when - others.ends[word] for word, when in self.ends.items() if word in others.ends])


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors in milliseconds."""

    starts: list[float]
    ends: list[float]


def speak(model: SpeechModel, voice: NDArray[np.float32], text: str) -> Spoken:
    """A sentence of plain words."""
    speech, pcm, words = model.start(text, voice), b"", list[Timing]()
    while True:
        chunk = speech.next_chunk()
        pcm += chunk.pcm
        words.extend(chunk.words)
        if chunk.last:
            wave = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
            return Spoken(text, wave.astype(np.float32), tuple(words))


def find_edges(spoken: Spoken) -> Edges:
    """The first start, the last end, and both sides of each pause of 60 ms or more behind a comma: where the wave rises
    above, or falls below, 40 dB under its loud parts."""
    levels = np.sqrt(np.square(spoken.wave[: len(spoken.wave) // _STEP * _STEP].reshape(-1, _STEP)).mean(axis=1))
    loud = _STEP_MS * np.flatnonzero(levels > np.quantile(levels, 0.95) * 10 ** (_SILENT_DB / 20))
    words, written = spoken.words, spoken.text.split()
    edges = Edges({0: float(loud[0])}, {len(words) - 1: float(loud[-1]) + _STEP_MS})
    for number, (before, behind) in enumerate(pairwise(words)):
        inside = loud[(loud > before.start_ms) & (loud < behind.end_ms)]
        gaps = np.diff(inside)
        if written[before.word][-1] in ",;" and gaps.max() > _LEAST_PAUSE_MS:
            place = int(gaps.argmax())
            edges.ends[number] = float(inside[place]) + _STEP_MS
            edges.starts[number + 1] = float(inside[place + 1])
    return edges


def letters(word: str) -> str:
    """The word as a recogniser's dictionary has it."""
    return re.sub(r"[^a-z']", "", word.lower())


class Aligner:
    """PocketSphinx with its own American English model."""

    def __init__(self) -> None:
        sphinx: Any = importlib.import_module("pocketsphinx")
        self._decoder = sphinx.Decoder(samprate=ENCODER_RATE, loglevel="FATAL", beam=1e-80, wbeam=1e-60, pbeam=1e-80)

    def align(self, spoken: Spoken) -> Edges:
        """Where the words are; nothing when it finds no way through."""
        margin = ENCODER_RATE * _MARGIN_MS // 1000
        wave = np.pad(soxr.resample(spoken.wave, SAMPLE_RATE, ENCODER_RATE), margin)
        wave = wave + np.random.default_rng(0).normal(0, _HISS, len(wave))
        self._decoder.set_align_text(" ".join(map(letters, spoken.text.split())))
        self._decoder.start_utt()
        self._decoder.process_raw((np.clip(wave, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = [segment for segment in self._decoder.seg() if segment.word[0] not in "<("]
        if len(found) != len(spoken.words):
            return Edges({}, {})
        starts = {number: 10.0 * segment.start_frame - _MARGIN_MS for number, segment in enumerate(found)}
        return Edges(starts, {number: 10.0 * (one.end_frame + 1) - _MARGIN_MS for number, one in enumerate(found)})


class Whisper:
    """The word times of Whisper: where its attention crosses from one word to the next."""

    def __init__(self, folder: Path) -> None:
        whisper: Any = importlib.import_module("faster_whisper")
        self._model = whisper.WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)

    def align(self, spoken: Spoken) -> Edges:
        """Where the words are; nothing when it heard others."""
        wave = soxr.resample(spoken.wave, SAMPLE_RATE, ENCODER_RATE)
        segments, _ = self._model.transcribe(wave, language="en", word_timestamps=True)
        heard = [word for segment in segments for word in segment.words]
        if [letters(word.word) for word in heard] != [letters(word) for word in spoken.text.split()]:
            return Edges({}, {})
        starts = {number: 1000.0 * word.start for number, word in enumerate(heard)}
        return Edges(starts, {number: 1000.0 * word.end for number, word in enumerate(heard)})


def describe(name: str, pairs: Sequence[tuple[Edges, Edges]]) -> None:
    """Print a line for starts and one for ends of some edges against others."""
    errors = [ours.less(theirs) for ours, theirs in pairs]
    starts, ends = [e for one in errors for e in one.starts], [e for one in errors for e in one.ends]
    for kind, values in (("starts", starts), ("ends", ends)):
        found = np.array(values)
        bias = np.median(found)
        median, most = np.median(abs(found)), np.quantile(abs(found), 0.95)
        spread = np.quantile(abs(found - bias), 0.95)
        print(f"{name:34} {kind:6} {len(found):4} {bias:+5.0f} {median:5.0f} {most:5.0f} {spread:5.0f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure how far word timings are from what others hear.")
    parser.add_argument("--whisper", type=Path, help="folder of a CTranslate2 Whisper model")
    parser.add_argument("--voices", type=Path, nargs="+", default=VOICES, help="recordings of who is to speak")
    options = parser.parse_args()
    bundle = Bundle.load(ROOT / "bundles" / "base")
    model, encoder = SpeechModel(bundle), SpeakerEncoder(bundle)
    others: list[tuple[str, Aligner | Whisper]] = []
    if importlib.util.find_spec("pocketsphinx"):
        others.append(("PocketSphinx", Aligner()))
    if options.whisper:
        others.append(("Whisper", Whisper(options.whisper)))
    print(f"{'':34} {'':6} {'n':>4} {'bias':>5} {'|med|':>5} {'p95':>5} {'p95-b':>5}  ms, p95-b: without the bias")
    for path in options.voices:
        name = path.stem.removeprefix("reference-")
        samples, rate = soundfile.read(path, dtype="float32")
        voice = encoder.embed(soxr.resample(samples, rate, ENCODER_RATE).astype(np.float32))
        spoken = [speak(model, voice, text) for text in TEXTS]
        heard = [find_edges(one) for one in spoken]
        describe(f"{name}: ours, wave", [(one.edges, edges) for one, edges in zip(spoken, heard, strict=True)])
        for title, other in others:
            theirs = [other.align(one) for one in spoken]
            describe(f"{name}: ours, {title}", [(one.edges, e) for one, e in zip(spoken, theirs, strict=True)])
            describe(f"{name}: {title}, wave", list(zip(theirs, heard, strict=True)))


if __name__ == "__main__":
    main()
