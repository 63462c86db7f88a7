"""A microphone recorded into memory, until a voice is made of it; nothing of it is ever written to a disk."""

from __future__ import annotations

import io
import wave
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from relay.errors import InvalidMessage
from storage.errors import IllegalTransition

RATE = 48_000
LONGEST_S = 60
LONGEST_GAP = RATE // 5
"""Samples of silence that make up for lost packets; a longer gap is a pause in the sending, and left out."""


class CaptureState(StrEnum):
    """What a recording is doing."""

    IDLE = "idle"
    RECORDING = "recording"
    ENROLLING = "enrolling"


_STEPS = {
    CaptureState.IDLE: {CaptureState.RECORDING},
    CaptureState.RECORDING: {CaptureState.ENROLLING, CaptureState.IDLE},
    CaptureState.ENROLLING: {CaptureState.IDLE},
}


class Recorder:
    """One recording at a time, mono at 48 kHz."""

    def __init__(self) -> None:
        self.state = CaptureState.IDLE
        self._sound = bytearray()
        self._expected: int | None = None

    @property
    def seconds(self) -> float:
        """How much there is."""
        return len(self._sound) / (2 * RATE)

    @property
    def full(self) -> bool:
        """Whether no more is taken."""
        return self.seconds >= LONGEST_S

    def start(self) -> None:
        """Begin; raises InvalidMessage while another recording is under way."""
        if self.state is not CaptureState.IDLE:
            raise InvalidMessage("a recording is under way already; stop it first", field="action")
        self._step(CaptureState.RECORDING)
        self._clear()

    def add(self, samples: npt.NDArray[np.int16], pts: int) -> None:
        """A frame, int16 [channels, samples], and where it lies in time, in samples; dropped when nobody records."""
        if self.state is not CaptureState.RECORDING or self.full:
            return
        if self._expected is not None and 0 < pts - self._expected <= LONGEST_GAP:
            self._sound += bytes(2 * (pts - self._expected))
        self._sound += samples.mean(axis=0).astype("<i2").tobytes()
        self._expected = pts + samples.shape[1]

    def stop(self) -> bytes:
        """The recording as a WAV file; raises InvalidMessage when there is none."""
        if self.state is not CaptureState.RECORDING:
            raise InvalidMessage("nothing is being recorded; send the action `start` first", field="action")
        self._step(CaptureState.ENROLLING)
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setnchannels(1)
            writer.setsampwidth(2)
            writer.setframerate(RATE)
            writer.writeframes(self._sound[: 2 * RATE * LONGEST_S])
        self._clear()
        return file.getvalue()

    def end(self) -> None:
        """What was recorded has become a voice, or will not."""
        if self.state is not CaptureState.IDLE:
            self._step(CaptureState.IDLE)
        self._clear()

    def _step(self, state: CaptureState) -> None:
        if state not in _STEPS[self.state]:
            raise IllegalTransition("a recording", self.state, state)
        self.state = state

    def _clear(self) -> None:
        self._sound = bytearray()
        self._expected = None
