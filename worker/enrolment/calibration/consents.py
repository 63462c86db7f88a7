"""How alike a spoken consent of 4 to 8 s and a sample are, of the same person and of different persons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

from worker.enrolment.calibration.people import People, enrol
from worker.enrolment.calibration.sounds import Source, make_pink
from worker.enrolment.consent_match import LEAST_LIKENESS
from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.recording import Recording
from worker.sv2tts.encoder import SpeakerEncoder
from worker.sv2tts.mel import Floats

THRESHOLDS = (0.65, 0.70, 0.72, 0.75, 0.78, 0.80)
_SAMPLE = 10 * SAMPLE_RATE
_SHORTEST_S, _LONGEST_S = 4.0, 8.0
_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Likenesses:
    """Cosines of one person's pairs and of two persons'."""

    same: NDArray[np.float64]
    different: NDArray[np.float64]

    def rates(self, threshold: float) -> tuple[float, float]:
        """The shares (0-1) of the same person refused and of different persons accepted."""
        return float((self.same < threshold).mean()), float((self.different >= threshold).mean())

    def equal_error(self) -> tuple[float, float]:
        """The rate at which both are wrong equally often, and the threshold there."""
        gaps = [(abs(np.subtract(*self.rates(at))), at) for at in np.arange(0.4, 0.95, 0.001)]
        at = float(min(gaps)[1])
        return sum(self.rates(at)) / 2, at


def calibrate_consents(encoder: SpeakerEncoder, people: People, source: Source) -> Iterator[str]:
    """Lines: the rates at several thresholds, and those of consents that were recorded worse than the sample."""
    for way, spoil in _WAYS.items():
        found = _compare(encoder, people, spoil, source)
        rate, at = found.equal_error()
        yield (
            f"{way}: {len(found.same)} pairs of one person, {len(found.different)} of two;"
            f" medians {np.median(found.same):.2f} and {np.median(found.different):.2f};"
            f" equal error rate {100 * rate:.2f} % at {at:.3f}"
        )
        yield from ("", "| threshold | same person refused | another person accepted |", "|---|---|---|")
        for threshold in THRESHOLDS:
            refused, accepted = found.rates(threshold)
            mark = " (ours)" if threshold == LEAST_LIKENESS else ""
            yield (
                f"| {threshold:.2f}{mark} | {refused * len(found.same):.0f} ({100 * refused:.2f} %)"
                f" | {accepted * len(found.different):.0f} ({100 * accepted:.2f} %) |"
            )
        yield ""


def _compare(
    encoder: SpeakerEncoder, people: People, spoil: Callable[[Samples, Source], Samples], source: Source
) -> Likenesses:
    names: list[str] = []
    samples: list[Floats] = []
    consents: list[Floats] = []
    for name, own in people.items():
        for one in own:
            length = round(source.uniform(_SHORTEST_S, _LONGEST_S) * SAMPLE_RATE)
            sample, consent = enrol(one[:_SAMPLE]), enrol(spoil(one[:length], source))
            if isinstance(sample, Recording) and isinstance(consent, Recording):
                names.append(name)
                samples.append(encoder.embed(sample.samples))
                consents.append(encoder.embed(consent.samples))
    cosines = np.stack(consents).astype(np.float64) @ np.stack(samples).T
    same = np.equal.outer(names, names)
    own_recording = np.eye(len(names), dtype=bool)
    return Likenesses(cosines[same & ~own_recording], cosines[~same])


def _telephone(samples: Samples, source: Source) -> Samples:
    narrow = soxr.resample(samples, SAMPLE_RATE, SAMPLE_RATE // 2)
    return np.asarray(soxr.resample(narrow, SAMPLE_RATE // 2, SAMPLE_RATE), np.float32)


def _noisy(samples: Samples, source: Source) -> Samples:
    """With a fan behind, 26 dB below the whole."""
    loudness = np.sqrt(np.mean(np.square(samples))) * _NOISE / np.float32(0.1)
    mixed = samples + make_pink(len(samples), source) * np.float32(loudness)
    return np.asarray(np.clip(mixed, -1, 1), np.float32)


_WAYS: Mapping[str, Callable[[Samples, Source], Samples]] = {
    "consent recorded like the sample": lambda samples, source: samples,
    "consent over a telephone (8 kHz)": _telephone,
    "consent with a fan behind (26 dB)": _noisy,
}
