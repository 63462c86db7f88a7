"""The ear: one piece of speech is written down, compared with everybody's reference and given its opinions."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np

from worker.sv2tts.encoder import SpeakerEncoder
from worker.sv2tts.mel import SAMPLE_RATE, Floats
from worker.training.judging.lapses import Lapse, find_lapses
from worker.training.judging.naturalness import Judge
from worker.training.judging.people import EAR_RATE, to_ear
from worker.training.judging.speakers import Spoken
from worker.training.recognition import Recogniser, count_errors, normalize_words

_HUSH = int(0.3 * EAR_RATE)
"""Silence around what the recogniser hears: a line is silent before and after speech."""

_FRAME = SAMPLE_RATE // 100
_QUIET = 10 ** (-35 / 20)
_LETTER_NAMES: Mapping[str, str] = {
    "a": "eh", "b": "be bee", "c": "see sea", "d": "dee", "e": "ee", "f": "ef eff", "g": "gee", "h": "aitch",
    "i": "eye aye", "j": "jay", "k": "kay", "l": "el ell", "m": "em", "n": "en", "o": "oh owe", "p": "pee pea",
    "q": "cue queue", "r": "are", "s": "es ess", "t": "tea tee", "u": "you", "v": "vee", "x": "ex", "y": "why",
    "z": "zee",
}  # fmt: skip


class Kind(StrEnum):
    """What kind of text is spoken."""

    LETTER = "one letter"
    WORD = "one word"
    SHORT = "short"
    QUESTION = "question"
    NUMBERS = "numbers"
    PLAIN = "plain"
    LONG = "long"
    PARAGRAPH = "sixty words"
    TRANSCRIPT = "transcript"
    RECORDING = "recording"


_SHORT_WORDS, _LONG_WORDS, _PARAGRAPH_WORDS = 3, 15, 40


def kind_of(text: str) -> Kind:
    """The kind of a sentence."""
    words = normalize_words(text)
    if len(words) == 1:
        return Kind.LETTER if len(words[0]) == 1 else Kind.WORD
    if len(words) <= _SHORT_WORDS:
        return Kind.SHORT
    if any(char.isdigit() for char in text):
        return Kind.NUMBERS
    if text.rstrip().endswith("?"):
        return Kind.QUESTION
    return Kind.PARAGRAPH if len(words) > _PARAGRAPH_WORDS else Kind.LONG if len(words) >= _LONG_WORDS else Kind.PLAIN


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be spoken and judged. `mark` tells apart what speaks and whose voice it is meant to be; `model` is
    the recording whose length is the right one, None for the teacher's reading of the text; `kept` is whether the
    sound is needed for the listening page."""

    system: str
    speaker: str
    kind: Kind
    text: str
    mark: str
    speak: Callable[[], Spoken]
    model: Floats | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found out about one task; times are in seconds, `impostors` the cosines to others' references."""

    system: str
    speaker: str
    kind: str
    text: str
    heard: str | None
    words: int
    errors: int
    lapses: list[str]
    likeness: float | None
    impostors: list[float]
    distillmos: float | None
    dnsmos: float | None
    seconds: float
    active_seconds: float
    model_seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    first_audio: list[float] = field(default_factory=list)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The judgement that :meth:`to_json` wrote; raises TypeError for anything else."""
        return cls(**stored)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def active_seconds(wav: Floats) -> float:
    """Seconds of 10 ms frames within 35 dB of the loud ones, so that pauses and silent ends do not count."""
    frames = wav[: len(wav) // _FRAME * _FRAME].reshape(-1, _FRAME)
    if not len(frames):
        return 0.0
    level = np.sqrt(np.mean(np.square(frames), axis=1))
    return float(np.sum(level > _QUIET * np.quantile(level, 0.95))) / 100


def same_letter(wanted: list[str], found: list[str]) -> bool:
    """Whether a single letter was heard as the name of that letter."""
    single = len(wanted) == len(found) == 1 and len(wanted[0]) == 1
    return single and found[0] in _LETTER_NAMES.get(wanted[0], "").split()


class Ear:
    """Listens on one thread. What is None, because a package is missing, is left out of the judgements."""

    def __init__(
        self, encoder: SpeakerEncoder, recogniser: Recogniser | None, distillmos: Judge | None, dnsmos: Judge | None
    ) -> None:
        self._encoder, self._recogniser = encoder, recogniser
        self._distillmos, self._dnsmos = distillmos, dnsmos

    def judge(
        self, task: Task, spoken: Spoken, references: Mapping[str, Floats], teacher_seconds: Callable[[str], float]
    ) -> Judgement:
        """Listen to what was spoken; `references` holds everybody's embedding by name."""
        samples = to_ear(spoken.wav)
        heard = self._recogniser.transcribe(np.pad(samples, _HUSH)) if self._recogniser else None
        wanted, found = normalize_words(task.text), normalize_words(heard or "")
        found = wanted if same_letter(wanted, found) else found
        own, others = self._compare(samples, task.speaker, references)
        lasts = active_seconds(spoken.wav)
        meant = teacher_seconds(task.text) if task.model is None else active_seconds(task.model)
        lapses: list[Lapse] = []
        if heard is not None:
            lapses = find_lapses(wanted, found, spoken.cut_short, spoken.running_on, lasts / max(meant, 0.01))
        return Judgement(
            system=task.system,
            speaker=task.speaker,
            kind=task.kind,
            text=task.text,
            heard=heard,
            words=len(wanted),
            errors=count_errors(wanted, found),
            lapses=[str(lapse) for lapse in lapses],
            likeness=own,
            impostors=others,
            distillmos=self._distillmos(samples) if self._distillmos else None,
            dnsmos=self._dnsmos(samples) if self._dnsmos else None,
            seconds=len(spoken.wav) / SAMPLE_RATE,
            active_seconds=lasts,
            model_seconds=meant,
            stages=spoken.stages,
            first_audio=list(spoken.first_audio),
        )

    def _compare(
        self, samples: Floats, speaker: str, references: Mapping[str, Floats]
    ) -> tuple[float | None, list[float]]:
        if speaker not in references or not np.any(samples):
            return None, []
        embedding = self._encoder.embed(samples)
        others = [float(embedding @ other) for name, other in references.items() if name != speaker]
        return float(embedding @ references[speaker]), others
