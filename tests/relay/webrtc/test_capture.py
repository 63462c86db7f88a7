"""relay.webrtc.capture."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from relay.errors import InvalidMessage
from relay.webrtc.capture import LONGEST_GAP, LONGEST_S, RATE, CaptureState, Recorder

FRAME = np.vstack([np.arange(960), np.arange(960)]).astype(np.int16)


def test_a_recording_is_the_frames_in_mono() -> None:
    """What was heard between start and stop, as a WAV file; nothing of what came before."""
    recorder = Recorder()
    recorder.add(FRAME, 0)
    recorder.start()
    for index in range(3):
        recorder.add(FRAME, (index + 1) * 960)
    assert recorder.seconds == pytest.approx(0.06)
    samples, rate = soundfile.read(io.BytesIO(recorder.stop()), dtype="int16")
    assert (rate, samples.tolist()) == (RATE, [*range(960)] * 3)
    states = [recorder.state]
    recorder.end()
    states.append(recorder.state)
    assert states == [CaptureState.ENROLLING, CaptureState.IDLE] and recorder.seconds == 0


def test_lost_packets_leave_silence_of_their_length() -> None:
    """But a pause in the sending is left out: it could be hours."""
    recorder = Recorder()
    recorder.start()
    recorder.add(FRAME, 0)
    recorder.add(FRAME, 4 * 960)
    assert recorder.seconds == pytest.approx(0.1)
    recorder.add(FRAME, 5 * 960 + LONGEST_GAP + 1)
    assert recorder.seconds == pytest.approx(0.12)


def test_a_recording_is_bounded() -> None:
    """A minute at the most."""
    recorder = Recorder()
    recorder.start()
    for index in range(LONGEST_S * 50 + 100):
        recorder.add(FRAME, index * 960)
    assert recorder.full and recorder.seconds == LONGEST_S


def test_one_recording_at_a_time() -> None:
    """The wrong order is told to the client and changes nothing."""
    recorder = Recorder()
    with pytest.raises(InvalidMessage, match="start"):
        recorder.stop()
    recorder.start()
    with pytest.raises(InvalidMessage, match="stop it first"):
        recorder.start()
    recorder.stop()
    with pytest.raises(InvalidMessage):
        recorder.stop()
