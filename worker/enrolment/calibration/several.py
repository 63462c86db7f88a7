"""How often one person is taken for several, and several for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from worker.enrolment.calibration.people import People, enrol, level, share
from worker.enrolment.calibration.sounds import Source
from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.recording import Recording
from worker.enrolment.speakers import LEAST_UNITY, measure_unity
from worker.sv2tts.encoder import SpeakerEncoder

_LENGTH = 10 * SAMPLE_RATE
_LONG = 30 * SAMPLE_RATE
_SHORTEST = 6 * SAMPLE_RATE


def calibrate_alone(encoder: SpeakerEncoder, people: People) -> Iterator[str]:
    """A table's lines: one person, in one recording of up to 10 s and in several joined, 5 s each and up to 30 s."""
    one = [_measure(encoder, own[:_LENGTH]) for mine in people.values() for own in mine]
    two = [_measure(encoder, joined) for mine in people.values() for joined in _join_own(mine, 5, _LENGTH)]
    all_ = [_measure(encoder, joined) for mine in people.values() for joined in _join_own(mine, 30, _LONG)]
    for name, unities in (("one recording", one), ("two recordings, 5 + 5 s", two), ("recordings up to 30 s", all_)):
        if told := [unity for unity in unities if unity is not None]:
            flags = [unity < LEAST_UNITY for unity in told]
            yield f"| one person, {name} | {share(flags)} | {min(told):.2f} |"


def calibrate_together(encoder: SpeakerEncoder, people: People, source: Source) -> Iterator[str]:
    """A table's lines: each person with another, drawn once, joined in several ways."""
    voices = {name: voice for name, own in people.items() if len(voice := _find_voice(own)) >= _SHORTEST}
    names = sorted(voices)
    others = [str(source.choice([other for other in names if other != name])) for name in names]
    for way, join in _WAYS.items():
        joined = [join(voices[name], voices[other]) for name, other in zip(names, others, strict=True)]
        told = [unity for one in joined if (unity := _measure(encoder, one)) is not None]
        yield f"| two persons, {way} | {share([unity < LEAST_UNITY for unity in told])} | {min(told):.2f} |"


def _measure(encoder: SpeakerEncoder, samples: Samples) -> float | None:
    recording = enrol(samples)
    return measure_unity(encoder, recording.voice) if isinstance(recording, Recording) else None


def _find_voice(own: list[Samples]) -> Samples:
    recording = enrol(own[0])
    return level(recording.voice) if isinstance(recording, Recording) else np.zeros(0, np.float32)


def _join_own(mine: list[Samples], seconds: int, length: int) -> Iterator[Samples]:
    """Each recording with those after it, `seconds` of each."""
    for number in range(len(mine) if len(mine) > 2 else 0):
        parts = [level(mine[(number + step) % len(mine)][: seconds * SAMPLE_RATE]) for step in (0, 3, 5)]
        yield np.concatenate(parts)[:length]


def _split(seconds: int) -> Callable[[Samples, Samples], Samples]:
    """10 s, of which the first `seconds` are the one's and the others the other's."""
    cut = seconds * SAMPLE_RATE
    return lambda one, other: np.concatenate([one[:cut], other[: _LENGTH - cut]])


def _alternate(seconds: float) -> Callable[[Samples, Samples], Samples]:
    """Up to 10 s of turns."""
    turn = round(seconds * SAMPLE_RATE)

    def join(one: Samples, other: Samples) -> Samples:
        starts = range(0, min(len(one), len(other), _LENGTH // 2), turn)
        return np.concatenate([voice[start : start + turn] for start in starts for voice in (one, other)])[:_LENGTH]

    return join


_WAYS: Mapping[str, Callable[[Samples, Samples], Samples]] = {
    "5 + 5 s": _split(5),
    "7 + 3 s": _split(7),
    "8 + 2 s": _split(8),
    "turns of 3 s": _alternate(3),
    "turns of 2 s": _alternate(2),
    "turns of 1.5 s": _alternate(1.5),
    "at the same time": lambda one, other: level(one[:_LENGTH][: len(other)] + other[:_LENGTH][: len(one)]),
}
