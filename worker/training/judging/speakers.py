"""Those who speak: the bundle with one of its vocoders, copies of recordings through a vocoder, and the teachers."""

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from worker.sv2tts.bundle import EMBEDDING_SIZE, FRAMES_PER_STEP, Bundle
from worker.sv2tts.mel import HOP_LENGTH, SAMPLE_RATE, Floats, log_mel
from worker.sv2tts.synthesizer import FRAMES_PER_CALL, Synthesizer, step_ceiling
from worker.sv2tts.vocoder import Vocoder
from worker.text.phonemes import Phonemizer
from worker.training.judging.errors import JudgingError
from worker.training.prompts import cut_text

if TYPE_CHECKING:
    from worker.training.kokoro import Renderer

_SHORT_MS, _LONG_MS = 45, 220
"""Speech below so many milliseconds a symbol has lost words, above it has gained some."""

_RISE = np.linspace(0.0, 1.0, 120, endpoint=False, dtype=np.float32)
_FRAME_MS = 1000 * HOP_LENGTH / SAMPLE_RATE
KOKORO_STYLES = ("af_heart", "am_michael")


@dataclass(frozen=True, slots=True)
class Spoken:
    """Speech float32[N] at 24 kHz. `stages` holds processor seconds, `first_audio` those until the first samples of a
    piece, `cut_short` and `running_on` the pieces whose length cannot be right."""

    wav: Floats
    stages: dict[str, float] = field(default_factory=dict)
    first_audio: tuple[float, ...] = ()
    cut_short: int = 0
    running_on: int = 0


class Clone:
    """The bundle's stages in a row on one thread, text cut into pieces as the service cuts it."""

    def __init__(self, bundle: Bundle, vocoder: Vocoder) -> None:
        self._phonemizer, self._synthesizer, self._vocoder = Phonemizer(), Synthesizer(bundle), vocoder
        self.speak("Ready when you are.", np.full(EMBEDDING_SIZE, EMBEDDING_SIZE**-0.5, np.float32))

    def speak(self, text: str, embedding: Floats) -> Spoken:
        """A text in the voice of float32[256]; raises JudgingError when it has nothing to say."""
        pieces = [self._speak_piece(piece, embedding) for piece in cut_text(text)]
        if not pieces:
            raise JudgingError(repr(text), "holds nothing that can be spoken", "take it out of the sentences")
        return Spoken(
            np.concatenate([piece.wav for piece in pieces]),
            {stage: sum(piece.stages[stage] for piece in pieces) for stage in pieces[0].stages},
            tuple(first for piece in pieces for first in piece.first_audio),
            sum(piece.cut_short for piece in pieces),
            sum(piece.running_on for piece in pieces),
        )

    def _speak_piece(self, text: str, embedding: Floats) -> Spoken:
        marks, wavs, frames, first = [time.process_time()], [], 0, 0.0
        stages = {"text": 0.0, "synthesizer": 0.0, "vocoder": 0.0}

        def note(stage: str) -> None:
            marks.append(time.process_time())
            stages[stage] += marks[-1] - marks[-2]

        ids = self._phonemizer.ids(text)
        if not ids:
            raise JudgingError(repr(text), "holds nothing that can be spoken", "take it out of the sentences")
        note("text")
        utterance, stream = self._synthesizer.start(ids, embedding), self._vocoder.start()
        # An utterance ends by itself at its ceiling; the range bounds a decoder that would not.
        for _ in range(step_ceiling(len(ids)) * FRAMES_PER_STEP // FRAMES_PER_CALL + 2):
            if utterance.finished:
                break
            mel = utterance.step()
            note("synthesizer")
            wavs.append(stream.push(mel, final=utterance.finished))
            note("vocoder")
            first = first or (marks[-1] - marks[0] if wavs[-1].size else 0.0)
            frames += len(mel)
        pace = frames * _FRAME_MS / len(ids)
        running_on = pace > _LONG_MS or frames >= step_ceiling(len(ids)) * FRAMES_PER_STEP
        return Spoken(_rise(np.concatenate(wavs)), stages, (first,), int(pace < _SHORT_MS), int(running_on))


def _rise(wav: Floats) -> Floats:
    """The first 5 ms rise from silence, as in service."""
    return np.concatenate([wav[: len(_RISE)] * _RISE[: len(wav)], wav[len(_RISE) :]])


def copy_recording(vocoder: Vocoder, wav: Floats) -> Spoken:
    """A recording at 24 kHz made into log-mels and back, eight frames at a time."""
    mel, stream, pieces = log_mel(wav), vocoder.start(), []
    began = time.process_time()
    for start in range(0, len(mel), FRAMES_PER_CALL):
        end = start + FRAMES_PER_CALL
        pieces.append(stream.push(mel[start:end], final=end >= len(mel)))
    return Spoken(np.concatenate(pieces), {"vocoder": time.process_time() - began})


class Teacher(Protocol):
    """A voice that the bundle learnt from."""

    name: str

    def speak(self, text: str) -> Spoken:
        """A text in the teacher's own voice."""


class Hibari:
    """`hibari-tts`, its one voice as it is."""

    name = "hibari"

    def __init__(self) -> None:
        from hibari import Hibari as Model

        self._model = Model()

    def speak(self, text: str) -> Spoken:
        """A text, in the pieces that the bundle is given."""
        began = time.process_time()
        wav = np.concatenate([np.asarray(self._model(piece), np.float32) for piece in cut_text(text)])
        return Spoken(wav, {"teacher": time.process_time() - began})


class Kokoro:
    """Kokoro-82M in one of its own styles, as :mod:`worker.training.kokoro` runs it."""

    def __init__(self, renderer: "Renderer", number: int, name: str) -> None:
        from worker.training.kokoro import Speaker

        self.name, self._renderer = f"kokoro {name}", renderer
        weights = np.eye(len(renderer.styles), dtype=np.float32)[number]
        self._speaker = Speaker(0, weights, weights, 1.0, 1.0)

    def speak(self, text: str) -> Spoken:
        """A text, in the pieces that the bundle is given."""
        began = time.process_time()
        renderings = [self._renderer.render(piece, self._speaker) for piece in cut_text(text)]
        wav = np.concatenate([rendering.wav for rendering in renderings if rendering is not None])
        return Spoken(wav, {"teacher": time.process_time() - began})


def find_teachers(styles: Path | None) -> tuple[list[Teacher], list[str]]:
    """The teachers that are installed, and a line about each that is not."""
    teachers: list[Teacher] = [Hibari()]
    if styles is None:
        return teachers, ["Kokoro was not asked: no folder of styles was named (--styles)"]
    try:
        teachers += _find_kokoro(styles)
    except (ImportError, OSError, ValueError) as problem:
        return teachers, [f"Kokoro was not asked: {problem}"]
    return teachers, []


def _find_kokoro(styles: Path) -> Sequence[Teacher]:
    if importlib.util.find_spec("onnx") is None:
        raise ModuleNotFoundError("the package 'onnx' is not installed (the `training` extra)")
    from worker.training.kokoro import Renderer

    renderer = Renderer(styles)
    names = sorted(path.stem for path in styles.glob("*.bin") if path.name.startswith(("af_", "am_", "bf_", "bm_")))
    return [Kokoro(renderer, names.index(name), name) for name in KOKORO_STYLES if name in names]
