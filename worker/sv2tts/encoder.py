"""The speaker encoder: a recording becomes 256 numbers (GE2E; Wan et al., "Generalized End-to-End Loss for Speaker
Verification", 2018).

Frames are mel power spectra of 25 ms every 10 ms at 16 kHz. A recording is cut into partial utterances of 1.6 s; the
embedding is the renormalised mean of theirs.
"""

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from worker.errors import RecordingError
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import Floats, filter_bank, hann, magnitudes

ENCODER_RATE = 16000
ENCODER_MELS = 40
_WINDOW = 400
_HOP = 160
_PARTIAL_FRAMES = 160
_PARTIALS_PER_SECOND = 1.3
_LEAST_COVERAGE = 0.75
_LOUDNESS_DBFS = -30.0
_LEAST_NORM = 1e-3


def raise_volume(samples: Floats, target_dbfs: float = _LOUDNESS_DBFS) -> Floats:
    """Samples scaled up to an RMS of `target_dbfs`; never scaled down, silence left alone."""
    rms = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
    target = 10.0 ** (target_dbfs / 20)
    return samples if rms == 0 or rms >= target else (samples * (target / rms)).astype(np.float32)


def power_mel(samples: Floats) -> Floats:
    """Mel power spectrogram float32[1 + N // 160, 40], not logarithmic, of float32[N] at 16 kHz."""
    spectrum = magnitudes(samples, _WINDOW, _HOP, hann(_WINDOW))
    bank = filter_bank(ENCODER_RATE, _WINDOW, ENCODER_MELS, 0.0, ENCODER_RATE / 2)
    return np.square(spectrum) @ bank


def partial_starts(samples: int) -> NDArray[np.int64]:
    """First frames of the partial utterances that cover a recording of so many samples; at least one."""
    frames = int(np.ceil((samples + 1) / _HOP))
    step = round(ENCODER_RATE / _PARTIALS_PER_SECOND / _HOP)
    starts = np.arange(0, max(1, frames - _PARTIAL_FRAMES + step + 1), step)
    covered = (samples - starts[-1] * _HOP) / (_PARTIAL_FRAMES * _HOP)
    return starts[:-1] if covered < _LEAST_COVERAGE and len(starts) > 1 else starts


def partial_mels(samples: Floats, starts: NDArray[np.int64] | None = None) -> Floats:
    """Mel power spectra float32[partials, 160, 40] of partial utterances of float32[N] at 16 kHz: those that
    :func:`partial_starts` gives, or of others by their first frames."""
    starts = partial_starts(len(samples)) if starts is None else starts
    missing = (int(starts[-1]) + _PARTIAL_FRAMES) * _HOP - len(samples)
    mel = power_mel(np.pad(samples, (0, max(0, missing))))
    return np.stack([mel[start : start + _PARTIAL_FRAMES] for start in starts])


def embed_with(session: InferenceSession, samples: Floats) -> Floats:
    """Voiceprint float32[256] of unit norm of mono float32[N] at 16 kHz by the encoder graph.

    Quiet recordings are raised to -30 dBFS. Raises RecordingError when there is no sound at all, or no voiceprint
    comes of it.
    """
    return unit_mean(embed_partials(session, samples))


def embed_partials(session: InferenceSession, samples: Floats, starts: NDArray[np.int64] | None = None) -> Floats:
    """Voiceprints float32[partials, 256] of unit norm of the partial utterances; see :func:`partial_mels`."""
    if not np.any(samples):
        raise RecordingError("recording_silent", "the recording holds no sound; record it again with the microphone on")
    mels = partial_mels(raise_volume(samples.astype(np.float32)), starts)
    return np.asarray(session.run(["embedding"], {"mel": mels})[0], np.float32)


def unit_mean(partials: Floats) -> Floats:
    """The mean float32[256] of float32[partials, 256], brought to unit norm; raises RecordingError when it has no
    direction, since what is stored must be a voiceprint and nothing else."""
    mean = partials.mean(axis=0, dtype=np.float64)
    norm = float(np.linalg.norm(mean))
    if not np.isfinite(norm) or norm < _LEAST_NORM:
        reason = "the speaker encoder made no voiceprint of the recording; enrol another one"
        raise RecordingError("enrolment_failed", reason)
    return np.asarray(mean / norm, np.float32)


class SpeakerEncoder:
    """Embeds recordings with the encoder graph of a bundle."""

    def __init__(self, bundle: Bundle, threads: int = 1) -> None:
        self._session = bundle.session("encoder", threads)

    def embed(self, samples: Floats) -> Floats:
        """Voiceprint of a recording; see :func:`embed_with`."""
        return embed_with(self._session, samples)

    def embed_every(self, samples: Floats, step_frames: int) -> Floats:
        """Voiceprints float32[n, 256] of windows of 1.6 s that begin every `step_frames` (10 ms) and lie inside
        float32[N], one at the least."""
        last = max(len(samples) // _HOP - _PARTIAL_FRAMES, 0)
        return embed_partials(self._session, samples, np.arange(0, last + 1, step_frames))
