"""One person or several, and whether a consent is by the person of the sample: through the encoder of the bundle."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.worker.recordings import MAX_BYTES, voice, write
from worker.enrolment import voice_activity
from worker.enrolment.calibration.people import enrol, read_people
from worker.enrolment.consent_match import LEAST_LIKENESS, check_speaker, measure_likeness
from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.recording import Recording, read_recording
from worker.enrolment.speakers import LEAST_UNITY, check_unity, measure_unity
from worker.errors import BundleError, RecordingError
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder, unit_mean

ROOT = Path(__file__).parents[2]
PEOPLE = ROOT.parent / "shared" / "data" / "librispeech-test-other"
ABOUT_10_S = 9.0


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    return SpeakerEncoder(Bundle.load(ROOT / "bundles" / "base"))


@pytest.fixture(scope="module")
def people() -> dict[str, list[Samples]]:
    if not PEOPLE.is_dir():
        pytest.skip("the recordings of people are not beside this checkout")
    return read_people(PEOPLE, each=4)


def read(samples: Samples) -> Recording:
    return read_recording(write(samples, rate=SAMPLE_RATE), max_bytes=MAX_BYTES)


def turns(seconds: float) -> Samples:
    """The two voices of the samples, in turns."""
    high, low = (voice(ABOUT_10_S / 2, SAMPLE_RATE, who=who) for who in ("high", "low"))
    step = round(seconds * SAMPLE_RATE)
    return np.concatenate([part[at : at + step] for at in range(0, len(high), step) for part in (high, low)])


@pytest.mark.parametrize("who", ["high", "low"])
def test_one_voice_is_taken(encoder: SpeakerEncoder, who: str) -> None:
    """A recording of one voice holds together."""
    unity = measure_unity(encoder, read(voice(ABOUT_10_S, SAMPLE_RATE, who=who)).voice)
    assert unity > LEAST_UNITY + 0.05
    check_unity(unity)


@pytest.mark.parametrize("seconds", [3.0, 4.5])
def test_two_voices_are_refused(encoder: SpeakerEncoder, seconds: float) -> None:
    """Two voices in turns of three seconds, or one after the other, are refused with the figure."""
    unity = measure_unity(encoder, read(turns(seconds)).voice)
    with pytest.raises(RecordingError, match=f"alike by {unity:.2f}") as caught:
        check_unity(unity)
    assert caught.value.code == "recording_several_speakers"


def test_a_short_recording_is_not_judged(encoder: SpeakerEncoder) -> None:
    """Below four seconds there is too little to tell two voices from one."""
    assert measure_unity(encoder, read(turns(1.6)[: round(3.6 * SAMPLE_RATE)]).voice) == 1.0


def test_a_consent_of_the_same_voice_matches(encoder: SpeakerEncoder) -> None:
    """Another stretch of the same voice is like the sample, and the likeness is told."""
    whole = voice(ABOUT_10_S * 1.5, SAMPLE_RATE)
    sample, consent = (encoder.embed(read(part).samples) for part in np.split(whole, [round(ABOUT_10_S * SAMPLE_RATE)]))
    assert check_speaker(consent, sample) == pytest.approx(measure_likeness(consent, sample))
    assert check_speaker(consent, sample) >= LEAST_LIKENESS


def test_a_consent_of_another_voice_does_not_match(encoder: SpeakerEncoder) -> None:
    """Another voice's consent is refused, with both figures."""
    sample, consent = (encoder.embed(read(voice(6, SAMPLE_RATE, who=who)).samples) for who in ("high", "low"))
    with pytest.raises(RecordingError, match=r"by 0\.\d\d, 0\.75 are needed") as caught:
        check_speaker(consent, sample)
    assert caught.value.code == "consent_speaker_mismatch"


def test_no_number_matches_nobody() -> None:
    """A voiceprint that is no number is not taken for a match."""
    with pytest.raises(RecordingError):
        check_speaker(np.full(256, np.nan, np.float32), np.full(256, 1 / 16, np.float32))


def test_people_match_themselves_alone(encoder: SpeakerEncoder, people: dict[str, list[Samples]]) -> None:
    """Recordings of one person pass for each other's consent, and those of four persons hardly ever do."""
    prints = [(name, encoder.embed(kept.samples)) for name, kept in enrol_all(people)]
    same = [one @ other for who, one in prints for other_who, other in prints if who == other_who and one is not other]
    different = [one @ other for who, one in prints for other_who, other in prints if who != other_who]
    assert min(same) >= LEAST_LIKENESS
    assert np.mean(np.array(different) >= LEAST_LIKENESS) <= 0.03


def test_people_are_one_person_each(encoder: SpeakerEncoder, people: dict[str, list[Samples]]) -> None:
    """Nobody's recording is taken for one of several persons; a recording of two people is."""
    alone = [kept.voice for _, kept in enrol_all(people)]
    assert min(measure_unity(encoder, one) for one in alone) >= LEAST_UNITY
    firsts = [own[0][: 5 * SAMPLE_RATE] for own in people.values()]
    both = np.concatenate([firsts[0], firsts[-1]])
    assert measure_unity(encoder, read(both).voice) < LEAST_UNITY


def enrol_all(people: dict[str, list[Samples]]) -> list[tuple[str, Recording]]:
    kept = [(name, enrol(one[: 10 * SAMPLE_RATE])) for name, own in people.items() for one in own]
    return [(name, one) for name, one in kept if isinstance(one, Recording)]


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
def test_what_is_no_voiceprint_is_refused(value: float) -> None:
    """A mean without a direction is never stored."""
    with pytest.raises(RecordingError) as caught:
        unit_mean(np.full((3, 256), value, np.float32))
    assert caught.value.code == "enrolment_failed"
    assert np.linalg.norm(unit_mean(np.full((3, 256), 0.5, np.float32))) == pytest.approx(1, abs=1e-6)


def test_another_detector_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is not the measured one, or none, is an operator's fault and not the recording's."""
    for name, value in (("_SHA256", hashlib.sha256(b"").hexdigest()), ("_PACKAGE", "no_such_package_anywhere")):
        with monkeypatch.context() as patch:
            patch.setattr(voice_activity, name, value)
            with pytest.raises(BundleError, match="voice activity detector"):
                voice_activity._load.__wrapped__()
