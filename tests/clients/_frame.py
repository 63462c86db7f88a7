"""Where the stack is, and what the tests of all families look at in the audio that a client hands over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TEXT = "Good morning. This is a short test of a cloned voice."
"""Two sentences of about three seconds together."""
LONG_TEXT = " ".join(["Extraordinarily complicated international telecommunications regulations apply here."] * 12)
"""Long enough to be interrupted in the middle."""
DIVIDE_HZ = 155
"""The voice `low` speaks below, `high` above."""
UNKNOWN_VOICE = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Stack:
    """The coordinates of the running stack (docs: tests/dialects/stack.py, which writes them)."""

    http: str
    https: str
    ca: str
    """The path of the PEM file of the certificate authority behind `https`; default TLS contexts trust it already."""
    key: str
    """Of tenant A, who may do everything a tenant can."""
    other_key: str
    """Of tenant B."""
    wrong_key: str
    voices: dict[str, str]
    """Ids of A's voices by name: `low` and `high`."""
    alias: str
    """A's word for the voice `low`."""
    foreign_voice: str
    """B's."""
    consent: str
    """A's."""
    recording: str
    """The path of a WAV file that makes a good reference."""

    @property
    def ws(self) -> str:
        return self.http.replace("http://", "ws://")

    @property
    def wss(self) -> str:
        return self.https.replace("https://", "wss://")


def read_pcm(pcm: bytes) -> np.ndarray:
    """s16le mono as float32 within -1..1; fails for half a sample."""
    assert len(pcm) % 2 == 0, f"{len(pcm)} bytes are no whole samples"
    return np.frombuffer(pcm, "<i2").astype(np.float32) / 32768


def check_speech(samples: np.ndarray, rate: int, *, seconds: tuple[float, float] = (0.5, 60.0)) -> None:
    """Fails unless it is as long as expected, as loud as speech, now louder and now quieter, smooth and not clipped."""
    duration = len(samples) / rate
    assert seconds[0] <= duration <= seconds[1], f"{duration:.2f} s of audio"
    assert np.isfinite(samples).all()
    frames = samples[: len(samples) // (rate // 50) * (rate // 50)].reshape(-1, rate // 50)
    levels = 20 * np.log10(np.sqrt(np.mean(frames.astype(np.float64) ** 2, axis=1)) + 1e-9)
    loud, quiet = np.percentile(levels, (90, 5))
    assert loud > -40, f"the loudest tenth begins at {loud:.1f} dBFS"
    assert loud - quiet > 12, f"{quiet:.1f} to {loud:.1f} dBFS is noise, or a tone"
    assert np.mean(np.abs(samples) >= 0.999) < 0.01, "clipped"
    similar = np.dot(samples[1:], samples[:-1]) / np.dot(samples, samples)
    assert similar > 0.5, f"neighbours are alike by {similar:.2f} only: bytes in the wrong order, or another format"


def find_pitch(samples: np.ndarray, rate: int) -> float:
    """The median pitch of what is voiced, in Hz: the peak of the autocorrelation in frames of 80 ms."""
    size = int(rate * 0.08)
    pitches = []
    for start in range(0, len(samples) - size, size // 4):
        frame = samples[start : start + size].astype(np.float64)
        frame -= frame.mean()
        similar = np.fft.irfft(np.abs(np.fft.rfft(frame, 2 * size)) ** 2)[: size // 2]
        shortest = rate // 400
        best = shortest + int(np.argmax(similar[shortest : rate // 65]))
        if similar[0] > size * 0.02**2 and similar[best] > similar[0] / 2:
            pitches.append(rate / best)
    assert pitches, "nothing in it is voiced"
    return float(np.median(pitches))


def check_voice(samples: np.ndarray, rate: int, name: str) -> None:
    """Fails unless it is this one of the stack's two voices, `low` (about 110 Hz) or `high` (about 210 Hz)."""
    pitch = find_pitch(samples, rate)
    assert (pitch < DIVIDE_HZ) == (name == "low"), f"a pitch of {pitch:.0f} Hz is not that of `{name}`"
