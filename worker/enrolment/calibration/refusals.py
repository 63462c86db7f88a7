"""What enrolment says of ordinary recordings of people, and of sounds that are no speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from worker.enrolment.calibration.people import People, enrol
from worker.enrolment.calibration.sounds import SOUNDS, Source
from worker.enrolment.gathering import SAMPLE_RATE
from worker.enrolment.recording import Recording

_LENGTH = 10 * SAMPLE_RATE
_SHORTEST = 5 * SAMPLE_RATE
_TIMES = 20


def calibrate_people(people: People) -> str:
    """How recordings of 5 to 10 s of people end."""
    kept = [enrol(one[:_LENGTH]) for own in people.values() for one in own if len(one) >= _SHORTEST]
    return _count(kept)


def calibrate_sounds(source: Source) -> Iterator[str]:
    """A table's lines: how 10 s of each sound end."""
    for name, make in SOUNDS.items():
        yield f"| {name} | {_count([enrol(make(_LENGTH, source)) for _ in range(_TIMES)])} |"


def _count(ends: list[Recording | str]) -> str:
    counts = Counter(end if isinstance(end, str) else "taken" for end in ends)
    return ", ".join(f"{count} of {len(ends)} {name}" for name, count in counts.most_common())
