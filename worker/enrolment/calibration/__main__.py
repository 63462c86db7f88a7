"""`python -m worker.enrolment.calibration --data FOLDER --bundle FOLDER`: prints the figures of docs/enrolment.md.

The data folder holds `librispeech-train-clean-100`, `librispeech-test-other` and `ljspeech-subset`; none of it is in
this repository. Ten minutes on two cores; `--part` takes one of the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from worker.enrolment.calibration.consents import calibrate_consents
from worker.enrolment.calibration.noise import calibrate_noise
from worker.enrolment.calibration.people import People, read_people
from worker.enrolment.calibration.refusals import calibrate_people, calibrate_sounds
from worker.enrolment.calibration.several import calibrate_alone, calibrate_together
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder

PARTS = ("refusals", "noise", "several", "consents")
_SEED = 20_26
_MANY, _FEW, _READER = "librispeech-train-clean-100", "librispeech-test-other", "ljspeech-subset"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="worker.enrolment.calibration", description="Measure enrolment's thresholds.")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the corpora")
    parser.add_argument("--bundle", type=Path, default=Path("bundles/base"), help="the bundle with the speaker encoder")
    parser.add_argument("--part", choices=PARTS, action="append", help="only these tables")
    options = parser.parse_args()
    encoder = SpeakerEncoder(Bundle.load(options.bundle))
    corpora = {name: _read(options.data, name, each) for name, each in ((_MANY, 1), (_FEW, 10), (_READER, 40))}
    for part in options.part or PARTS:
        print(f"\n## {part}\n", flush=True)
        for line in _calibrate(part, encoder, corpora):
            print(line, flush=True)


def _read(data: Path, name: str, each: int) -> People:
    people = read_people(data / name, each=each)
    # One reader is spread over chapters, which are no speakers.
    return {name: [one for own in people.values() for one in own][:each]} if name == _READER else people


def _calibrate(part: str, encoder: SpeakerEncoder, corpora: dict[str, People]) -> Iterator[str]:
    source = np.random.default_rng(_SEED)
    many, few, reader = (corpora[name] for name in (_MANY, _FEW, _READER))
    if part == "refusals":
        for name, people in corpora.items():
            yield name
            yield from calibrate_people(people)
        yield from calibrate_sounds(source)
    elif part == "noise":
        yield from calibrate_noise(encoder, dict(list(many.items())[:60]), source)
    elif part == "several":
        for people in (many, few, reader):
            yield from calibrate_alone(encoder, people)
        yield from calibrate_together(encoder, many, source)
        yield from calibrate_together(encoder, few, source)
    else:
        for people in (many | few, many | reader):
            yield from calibrate_consents(encoder, people, source)


if __name__ == "__main__":
    main()
