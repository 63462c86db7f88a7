"""How good a bundle is: words understood, likeness to unseen people, endings, and speed.

    python -m worker.training.evaluate --bundle bundles/base --reference-dir DIR --recogniser MODEL_DIR --out REPORT

`--reference-dir` holds `SPEAKER-*.flac`, recordings of people the models never heard. Some of a speaker's recordings
are the reference, the rest are only listened to: they tell how alike two real recordings of one person are. Writes
REPORT.json, REPORT.md and REPORT.figures.json.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder
from worker.sv2tts.synthesizer import Synthesizer, step_ceiling
from worker.sv2tts.vocoder import Vocoder
from worker.text.phonemes import Phonemizer
from worker.training.prompts import cut_text
from worker.training.recognition import Recogniser, WhisperRecogniser, count_errors, normalize_words

Array = npt.NDArray[np.float32]

RATE = 24000
_FRAMES_PER_STEP = 4
_REFERENCE_SECONDS = 12.0
_HUSH = 4800
"""Samples of silence (at 16 kHz) around what the recogniser hears: a line is silent before and after speech."""

_SHORT_MS, _LONG_MS = 45, 220
"""Speech below so many milliseconds a symbol has lost words, above it has gained some."""


@dataclass(frozen=True, slots=True)
class Person:
    """An unseen speaker: the embedding of the reference, and the likeness of the other recordings to it."""

    name: str
    embedding: Array
    own_likeness: float


@dataclass(slots=True)
class Clock:
    """Processor seconds spent in each stage, and seconds on the wall until the first samples."""

    text: float = 0.0
    synthesizer: float = 0.0
    vocoder: float = 0.0
    first_audio: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece as spoken."""

    wav: Array
    milliseconds_per_symbol: float
    at_ceiling: bool
    clock: Clock


@dataclass(frozen=True, slots=True)
class Result:
    """One sentence by one speaker."""

    speaker: str
    sentence: str
    heard: str
    words: int
    errors: int
    likeness: float
    impostor_likeness: float
    seconds: float
    cut_short: int
    running_on: int


class Speech:
    """The bundle's stages in a row, on one thread each."""

    def __init__(self, bundle: Bundle) -> None:
        self.encoder = SpeakerEncoder(bundle)
        self._phonemizer, self._synthesizer, self._vocoder = Phonemizer(), Synthesizer(bundle), Vocoder(bundle)
        self.speak("Ready.", np.full(256, 1 / 16, np.float32))

    def speak(self, text: str, embedding: Array) -> Piece:
        """One piece, timed stage by stage; raises ValueError when there is nothing to say."""
        clock, wavs, frames = Clock(), [], 0
        began, worked = time.perf_counter(), time.process_time()
        ids = self._phonemizer.ids(text)
        clock.text, worked = time.process_time() - worked, time.process_time()
        utterance, stream = self._synthesizer.start(ids, embedding), self._vocoder.start()
        while not utterance.finished:
            mel = utterance.step()
            clock.synthesizer, worked = clock.synthesizer + time.process_time() - worked, time.process_time()
            wavs.append(stream.push(mel, final=utterance.finished))
            clock.vocoder, worked = clock.vocoder + time.process_time() - worked, time.process_time()
            if not clock.first_audio and wavs[-1].size:
                clock.first_audio = time.perf_counter() - began
            frames += len(mel)
        return Piece(
            np.concatenate(wavs), frames * 10 / len(ids), frames >= step_ceiling(len(ids)) * _FRAMES_PER_STEP, clock
        )


def read_people(root: Path, encoder: SpeakerEncoder) -> list[Person]:
    """Every speaker of a folder."""
    paths: dict[str, list[Path]] = {}
    for path in sorted(root.glob("*.flac")):
        paths.setdefault(path.stem.split("-")[0], []).append(path)
    return [_read_person(name, found, encoder) for name, found in paths.items()]


def _read_person(name: str, paths: Sequence[Path], encoder: SpeakerEncoder) -> Person:
    recordings = []
    for path in paths:
        samples, rate = soundfile.read(path, dtype="float32")
        recordings.append(soxr.resample(samples, rate, 16000).astype(np.float32))
    used, seconds = 0, 0.0
    while used < len(recordings) - 1 and seconds < _REFERENCE_SECONDS:
        seconds += len(recordings[used]) / 16000
        used += 1
    embedding = encoder.embed(np.concatenate(recordings[:used]))
    others = [float(embedding @ encoder.embed(other)) for other in recordings[used:]]
    return Person(name, embedding, float(np.mean(others)))


def judge_sentence(
    sentence: str, person: Person, people: Sequence[Person], speech: Speech, recogniser: Recogniser
) -> tuple[Result, list[Piece]]:
    """Speak a sentence piece by piece, listen to it, and compare."""
    pieces = [speech.speak(text, person.embedding) for text in cut_text(sentence)]
    samples = soxr.resample(np.concatenate([piece.wav for piece in pieces]), RATE, 16000).astype(np.float32)
    heard, embedding = recogniser.transcribe(np.pad(samples, _HUSH)), speech.encoder.embed(samples)
    wanted = normalize_words(sentence)
    result = Result(
        speaker=person.name,
        sentence=sentence,
        heard=heard,
        words=len(wanted),
        errors=count_errors(wanted, normalize_words(heard)),
        likeness=float(embedding @ person.embedding),
        impostor_likeness=float(np.mean([embedding @ other.embedding for other in people if other is not person])),
        seconds=len(samples) / 16000,
        cut_short=sum(piece.milliseconds_per_symbol < _SHORT_MS for piece in pieces),
        running_on=sum(piece.at_ceiling or piece.milliseconds_per_symbol > _LONG_MS for piece in pieces),
    )
    return result, pieces


def summarize(results: Sequence[Result], pieces: Sequence[Piece], people: Sequence[Person]) -> dict[str, float]:
    """The figures of a report; real-time factors are processor seconds a second of speech."""
    seconds = sum(result.seconds for result in results)
    first = np.asarray([piece.clock.first_audio for piece in pieces])
    return {
        "word_error_rate": sum(result.errors for result in results) / sum(result.words for result in results),
        "likeness": float(np.mean([result.likeness for result in results])),
        "impostor_likeness": float(np.mean([result.impostor_likeness for result in results])),
        "likeness_of_real_recordings": float(np.mean([person.own_likeness for person in people])),
        "cut_short": sum(result.cut_short for result in results),
        "running_on": sum(result.running_on for result in results),
        "pieces": len(pieces),
        "milliseconds_per_symbol": float(np.mean([piece.milliseconds_per_symbol for piece in pieces])),
        "real_time_factor_text": sum(piece.clock.text for piece in pieces) / seconds,
        "real_time_factor_synthesizer": sum(piece.clock.synthesizer for piece in pieces) / seconds,
        "real_time_factor_vocoder": sum(piece.clock.vocoder for piece in pieces) / seconds,
        "first_audio_ms_median": 1000 * float(np.median(first)),
        "first_audio_ms_p95": 1000 * float(np.quantile(first, 0.95)),
    }


def write_report(out: Path, figures: dict[str, float], results: Sequence[Result]) -> None:
    """REPORT.json, REPORT.md, and REPORT.figures.json for the bundle's manifest, beside each other."""
    out.parent.mkdir(parents=True, exist_ok=True)
    report = {"figures": figures, "results": [asdict(result) for result in results]}
    out.with_suffix(".json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    rounded = {name: round(value, 4) for name, value in figures.items()}
    out.with_suffix(".figures.json").write_text(json.dumps({"speech": rounded}, indent=1) + "\n", encoding="utf-8")
    lines = ["# Evaluation", "", "| figure | value |", "|---|---|"]
    lines += [f"| {name.replace('_', ' ')} | {value:.3f} |" for name, value in figures.items()]
    lines += ["", "| speaker | errors | likeness | said | heard |", "|---|---|---|---|---|"]
    lines += [
        f"| {result.speaker} | {result.errors}/{result.words} | {result.likeness:.2f} | {result.sentence} | "
        f"{result.heard} |"
        for result in results
    ]
    out.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def evaluate(bundle: Bundle, references: Path, sentences: Sequence[str], recogniser: Recogniser, out: Path) -> None:
    """Judge a bundle and write the report."""
    speech = Speech(bundle)
    people = read_people(references, speech.encoder)
    judged = [
        judge_sentence(sentence, person, people, speech, recogniser) for person in people for sentence in sentences
    ]
    results = [result for result, _ in judged]
    figures = summarize(results, [piece for _, pieces in judged for piece in pieces], people)
    write_report(out, figures, results)
    print(json.dumps(figures, indent=1))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Judge a bundle on people it never heard.")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--reference-dir", type=Path, required=True)
    parser.add_argument("--recogniser", type=Path, required=True, help="folder of a CTranslate2 Whisper model")
    parser.add_argument("--sentences", type=Path, default=Path(__file__).with_name("sentences.txt"))
    parser.add_argument("--out", type=Path, required=True, help="report, without a suffix")
    options = parser.parse_args()
    sentences = options.sentences.read_text(encoding="utf-8").splitlines()
    evaluate(
        Bundle.load(options.bundle),
        options.reference_dir,
        sentences,
        WhisperRecogniser(options.recogniser),
        options.out,
    )


if __name__ == "__main__":
    main()
