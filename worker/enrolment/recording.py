"""From an uploaded file's bytes to a reference recording: mono, 16 kHz, speech only, and fit to make a voice of."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
import soundfile

from worker.enrolment.acoustics import (
    SILENCE_DB,
    measure_bandwidth,
    measure_levels,
    measure_loudness,
    measure_snr,
    measure_sound,
)
from worker.enrolment.decoding import decode
from worker.enrolment.gathering import SAMPLE_RATE, Decoded, Samples
from worker.enrolment.quality import LEAST_SNR_DB, MAX_FLAT_SHARE, MIN_SPEECH_S, Quality
from worker.enrolment.speech_bounds import cut_speech, find_speech, join_speech
from worker.enrolment.stages import Report, Stage, report_nothing
from worker.enrolment.voice_activity import detect_speech
from worker.errors import RecordingError

SHORTEST_S = 0.1
"""Below this there is nothing to measure."""

MAX_SPEECH_S = 30
"""Seconds of speech that are kept; what follows is left out."""

LEAST_SPEECH_SHARE = 0.3
"""The share of what is heard that has to be speech."""

_ADVICE = "send 5 to 10 s of clear speech of one person"
_MEGABYTE = 1024 * 1024
_LISTENING_DB = -25.0
_MOST_GAIN_DB = 30.0
_FULL_SCALE = 1.0
_STEPS_16_BIT = 32_767


@dataclass(frozen=True, slots=True)
class Recording:
    """A reference recording: `samples` float32 [N] at 16 kHz, mono, within full scale; `source_format` as `WAV/PCM_16`.

    `voice` is the same without its pauses, for those who compare voices.
    """

    samples: Samples = field(repr=False)
    voice: Samples = field(repr=False)
    duration_s: float
    source_format: str
    quality: Quality


def read_recording(data: bytes, *, max_bytes: int, report: Report = report_nothing) -> Recording:
    """Decodes, mixes, trims and checks an upload; the same bytes give the same samples.

    Raises:
        RecordingError: `recording_empty`, `recording_too_large`, `recording_not_audio`, `recording_too_long`,
            `recording_too_low_rate`, `recording_too_many_channels`, `recording_non_finite`, `recording_silent`,
            `recording_clipped`, `recording_not_speech`, `recording_too_short` or `recording_noisy`, with the figure
            and the fix; `enrolment_failed` where this machine is at fault.
        BundleError: the voice activity detector is not installed.
    """
    _check_size(len(data), max_bytes)
    report(Stage.DECODING)
    decoded = decode(data)
    report(Stage.EXAMINING)
    return examine(decoded)


def examine(decoded: Decoded) -> Recording:
    """The speech of a decoded file, and how good it is; raises as :func:`read_recording` does."""
    samples = decoded.samples
    _check_length(len(samples))
    levels = measure_levels(samples)
    _check_level(float(levels.max()))
    _check_clipping(decoded.flat_share)
    probabilities = detect_speech(_raise_level(samples, measure_loudness(levels)))
    spans = find_speech(probabilities)
    speech_s = sum(span.length for span in spans) / SAMPLE_RATE
    _check_speech(speech_s, measure_sound(levels), len(samples) / SAMPLE_RATE)
    quality = Quality(
        snr_db=measure_snr(samples, probabilities),
        speech_s=speech_s,
        flat_share=decoded.flat_share,
        bandwidth_hz=measure_bandwidth(samples, probabilities),
    )
    _check_noise(quality.snr_db)
    kept, voice = (
        part[: MAX_SPEECH_S * SAMPLE_RATE] for part in (join_speech(samples, spans), cut_speech(samples, spans))
    )
    return Recording(kept, voice, len(kept) / SAMPLE_RATE, decoded.source_format, quality)


def to_flac(samples: Samples) -> bytes:
    """A FLAC file (16 kHz, mono, 16 bit) of float32 [N]; what is beyond full scale is cut off."""
    steps = np.rint(np.clip(samples, -_FULL_SCALE, _FULL_SCALE) * _STEPS_16_BIT).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, steps, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _raise_level(samples: Samples, loudness_db: float) -> Samples:
    """What the voice activity detector listens to: it misses half of what is whispered into a far microphone."""
    gain_db = min(max(_LISTENING_DB - loudness_db, 0.0), _MOST_GAIN_DB)
    raised: Samples = np.clip(samples * np.float32(10 ** (gain_db / 20)), -_FULL_SCALE, _FULL_SCALE)
    return raised


def _check_size(size: int, max_bytes: int) -> None:
    if not size:
        raise RecordingError("recording_empty", f"the recording has no bytes; {_ADVICE}")
    if size > max_bytes:
        raise RecordingError(
            "recording_too_large",
            f"the recording has {size / _MEGABYTE:.1f} MiB, {max_bytes / _MEGABYTE:.1f} are taken;"
            f" {_ADVICE}, or compress it as FLAC, OGG, MP3 or M4A",
        )


def _check_length(samples: int) -> None:
    if samples < SAMPLE_RATE * SHORTEST_S:
        raise RecordingError(
            "recording_too_short", f"the recording lasts {1000 * samples / SAMPLE_RATE:.0f} ms; {_ADVICE}"
        )


def _check_level(loudest_db: float) -> None:
    if loudest_db <= SILENCE_DB:
        raise RecordingError(
            "recording_silent",
            f"the recording is silent: its loudest moment has {loudest_db:.0f} dB of full scale, speech has about -25;"
            " check the microphone and its level",
        )


def _check_clipping(flat_share: float) -> None:
    if flat_share > MAX_FLAT_SHARE:
        raise RecordingError(
            "recording_clipped",
            f"{flat_share:.1%} of the recording is cut off at the peak, {MAX_FLAT_SHARE:.0%} is taken;"
            " record again with a lower input level or farther from the microphone",
        )


def _check_speech(speech_s: float, sound_s: float, whole_s: float) -> None:
    if sound_s >= MIN_SPEECH_S and speech_s < LEAST_SPEECH_SHARE * sound_s:
        raise RecordingError(
            "recording_not_speech",
            f"the recording holds {sound_s:.1f} s of sound, of which {speech_s:.1f} s are speech;"
            f" {_ADVICE}, without music or noise",
        )
    if speech_s < MIN_SPEECH_S:
        raise RecordingError(
            "recording_too_short",
            f"the recording holds {speech_s:.1f} s of speech in {whole_s:.1f} s,"
            f" {MIN_SPEECH_S:.0f} are needed and 5 to 10 are best; {_ADVICE}",
        )


def _check_noise(snr_db: float) -> None:
    if snr_db < LEAST_SNR_DB:
        raise RecordingError(
            "recording_noisy",
            f"the speech is {snr_db:.0f} dB above the noise, {LEAST_SNR_DB:.0f} are needed and 30 are best;"
            " record in a quiet room, close to the microphone",
        )
