"""What enrolment says of ordinary recordings of people, and of sounds that are no speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import soxr

from worker.enrolment.calibration.people import People, enrol
from worker.enrolment.calibration.sounds import SOUNDS, Source
from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.recording import Recording

_LENGTH = 10 * SAMPLE_RATE
_SHORTEST = 5 * SAMPLE_RATE
_TIMES = 20


def calibrate_people(people: People) -> Iterator[str]:
    """A table's lines: how recordings of 5 to 10 s of people end, as they are and spoilt."""
    for way, spoil in _WAYS.items():
        ends = [enrol(spoil(one[:_LENGTH])) for own in people.values() for one in own if len(one) >= _SHORTEST]
        yield f"| {way} | {_count(ends)} |"


def calibrate_sounds(source: Source) -> Iterator[str]:
    """A table's lines: how 10 s of each sound end."""
    for name, make in SOUNDS.items():
        yield f"| {name} | {_count([enrol(make(_LENGTH, source)) for _ in range(_TIMES)])} |"


def _narrow(samples: Samples) -> Samples:
    """A telephone: 8 kHz, 8 bit on a logarithmic scale (mu = 255, ITU-T G.711)."""
    narrow = soxr.resample(samples, SAMPLE_RATE, SAMPLE_RATE // 2)
    bent = np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256)
    coarse = np.rint(bent * 127) / 127
    straight = np.sign(coarse) * np.expm1(np.abs(coarse) * np.log(256)) / 255
    return np.asarray(soxr.resample(straight, SAMPLE_RATE // 2, SAMPLE_RATE), np.float32)


_WAYS: Mapping[str, Callable[[Samples], Samples]] = {
    "as they are": lambda samples: samples,
    "over a telephone": _narrow,
    "30 dB softer": lambda samples: samples * np.float32(10 ** (-30 / 20)),
}


def _count(ends: list[Recording | str]) -> str:
    counts = Counter(end if isinstance(end, str) else "taken" for end in ends)
    return ", ".join(f"{count} of {len(ends)} {name}" for name, count in counts.most_common())
