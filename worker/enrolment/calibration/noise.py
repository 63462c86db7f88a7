"""How noise of a known level is measured, refused, and what it does to the voiceprint."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from worker.enrolment.acoustics import measure_snr
from worker.enrolment.calibration.people import People, enrol, share
from worker.enrolment.calibration.sounds import SOUNDS, Source
from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.recording import Recording
from worker.enrolment.speech_bounds import find_speech
from worker.enrolment.voice_activity import detect_speech
from worker.sv2tts.encoder import SpeakerEncoder

RATIOS_DB = (30, 20, 15, 10, 5, 0)
KINDS = ("white", "pink", "traffic", "music")
_LENGTH = 10 * SAMPLE_RATE


def calibrate_noise(encoder: SpeakerEncoder, people: People, source: Source) -> Iterator[str]:
    """A table's lines: what is measured at each true ratio, how many are refused, and the voiceprint's likeness."""
    clean = [(first[:_LENGTH], kept) for first, kept in _enrol_first(people)]
    prints = [encoder.embed(kept.samples) for _, kept in clean]
    yield "| noise | true SNR | measured (mean, deviation) | refused as noisy | refused for another reason | likeness |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS:
        for ratio in RATIOS_DB:
            mixed = [_add(samples, SOUNDS[kind](len(samples), source), ratio) for samples, _ in clean]
            figures = [measure_snr(one, detect_speech(one)) for one in mixed]
            ends = [enrol(one) for one in mixed]
            noisy, other = ([end == "recording_noisy" for end in ends], [_is_other(end) for end in ends])
            likeness = [float(encoder.embed(one) @ own) for one, own in zip(mixed, prints, strict=True)]
            yield (
                f"| {kind} | {ratio} dB | {np.mean(figures):.1f} dB, {np.std(figures):.1f} | {share(noisy)}"
                f" | {share(other)} | {np.mean(likeness):.2f} |"
            )


def _enrol_first(people: People) -> Iterator[tuple[Samples, Recording]]:
    for own in people.values():
        kept = enrol(own[0][:_LENGTH])
        if isinstance(kept, Recording):
            yield own[0], kept


def _is_other(end: Recording | str) -> bool:
    return isinstance(end, str) and end != "recording_noisy"


def _add(samples: Samples, noise: Samples, ratio_db: float) -> Samples:
    """Speech and noise, whose powers differ by a ratio while somebody speaks; within full scale."""
    spans = find_speech(detect_speech(samples))
    power = np.mean([np.mean(np.square(samples[span.start : span.end])) for span in spans])
    scale = np.sqrt(power / 10 ** (ratio_db / 10) / np.mean(np.square(noise)))
    mixed = samples + noise * np.float32(scale)
    return np.asarray(mixed / max(float(np.abs(mixed).max()), 1.0), np.float32)
