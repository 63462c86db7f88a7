"""worker.enrolment on what a browser's MediaRecorder really writes."""

from __future__ import annotations

from pathlib import Path

from worker.enrolment.recording import read_recording

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_what_a_browser_recorded_is_the_speech_that_its_microphone_heard() -> None:
    """A WebM file that says neither its length nor where its clusters end gives as much speech as the WAV file."""
    recorded = read_recording((SAMPLES / "browser-recording.webm").read_bytes(), max_bytes=2**20)
    heard = read_recording((SAMPLES / "reference-high.wav").read_bytes(), max_bytes=2**20)
    assert abs(recorded.duration_s - heard.duration_s) < 0.5
