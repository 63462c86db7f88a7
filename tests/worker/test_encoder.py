"""The speaker encoder of the base bundle: what its voiceprints are and how they behave."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from worker.errors import RecordingError
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import ENCODER_RATE, SpeakerEncoder, partial_mels, partial_starts, raise_volume
from worker.sv2tts.mel import Floats

ROOT = Path(__file__).parents[2]
PEOPLE = ROOT.parent / "shared" / "data" / "librispeech-test-other"

PUBLISHED = {
    "high": {197: 0.2769, 45: 0.2343, 240: 0.2120, 10: 0.2072, 160: 0.1979, 58: 0.1771, 159: 0.1764, 225: 0.1675},
    "low": {197: 0.2572, 89: 0.2307, 103: 0.1888, 158: 0.1810, 148: 0.1698, 243: 0.1685, 217: 0.1675, 151: 0.1661},
}
"""The largest components that the published PyTorch implementation gives for our sample recordings."""


def read_16k(path: Path) -> Floats:
    samples, rate = soundfile.read(path, dtype="float32")
    return np.asarray(soxr.resample(samples, rate, ENCODER_RATE), np.float32)


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    return SpeakerEncoder(Bundle.load(ROOT / "bundles" / "base"))


@pytest.fixture(scope="module")
def samples() -> dict[str, Floats]:
    return {name: read_16k(ROOT / "samples" / f"reference-{name}.wav") for name in ("high", "low")}


@pytest.mark.parametrize("name", ["high", "low"])
def test_an_embedding_is_the_published_one(encoder: SpeakerEncoder, samples: dict[str, Floats], name: str) -> None:
    """The voiceprint is that of the published implementation to three decimals, not negative and of unit norm."""
    embedding = encoder.embed(samples[name])
    assert embedding.shape == (256,)
    assert embedding.dtype == np.float32
    assert embedding.min() >= 0
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-5)
    assert [embedding[index] for index in PUBLISHED[name]] == pytest.approx(list(PUBLISHED[name].values()), abs=1e-3)


def test_parts_of_one_recording_are_nearer_than_two_speakers(
    encoder: SpeakerEncoder, samples: dict[str, Floats]
) -> None:
    """Two halves of a recording are much more alike than recordings of two speakers."""
    halves = [encoder.embed(half) for half in np.array_split(samples["high"], 2)]
    other = encoder.embed(samples["low"])
    assert halves[0] @ halves[1] > max(halves[0] @ other, halves[1] @ other) + 0.1


def test_a_quiet_recording_has_the_same_embedding(encoder: SpeakerEncoder, samples: dict[str, Floats]) -> None:
    """A recording 20 dB below -30 dBFS is raised to it, so its voiceprint hardly changes."""
    levelled = raise_volume(samples["high"] * np.float32(1e-3))
    assert encoder.embed(levelled * np.float32(0.1)) @ encoder.embed(levelled) > 0.9999


def test_a_loud_recording_is_left_as_it_is(samples: dict[str, Floats]) -> None:
    """Volume is only ever raised."""
    assert raise_volume(samples["high"]) is samples["high"]


@pytest.mark.parametrize("recording", [np.zeros(0, np.float32), np.zeros(16000, np.float32)], ids=["empty", "zeros"])
def test_silence_has_no_speaker(encoder: SpeakerEncoder, recording: Floats) -> None:
    """A recording without sound is refused with a code for the client."""
    with pytest.raises(RecordingError) as refusal:
        encoder.embed(recording)
    assert refusal.value.code == "recording_silent"


def test_a_short_recording_is_one_partial(encoder: SpeakerEncoder, samples: dict[str, Floats]) -> None:
    """A recording shorter than 1.6 s is padded to one partial utterance and still embedded."""
    short = samples["high"][4000:12000]
    assert partial_mels(short).shape == (1, 160, 40)
    assert np.linalg.norm(encoder.embed(short)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("seconds", "starts"), [(1.6, [0]), (2.4, [0, 77]), (1.8, [0]), (10.0, [*range(0, 848, 77)])])
def test_partials_cover_a_recording(seconds: float, starts: list[int]) -> None:
    """Partial utterances of 1.6 s begin every 0.77 s; the last is kept when sound fills three quarters of it."""
    assert partial_starts(int(seconds * ENCODER_RATE)).tolist() == starts


def test_a_batch_is_its_rows(samples: dict[str, Floats]) -> None:
    """The graph embeds each row of a batch as if it were alone."""
    session = Bundle.load(ROOT / "bundles" / "base").session("encoder")
    mels = partial_mels(samples["low"])
    together = session.run(["embedding"], {"mel": mels})[0]
    alone = np.concatenate([session.run(["embedding"], {"mel": row[None]})[0] for row in mels])
    assert np.allclose(together, alone, atol=1e-5)


@pytest.mark.skipif(not PEOPLE.is_dir(), reason="the recordings of people are not beside this checkout")
def test_people_are_told_apart(encoder: SpeakerEncoder) -> None:
    """Recordings of one person are more alike than of different people, by 0.2 on average."""
    people: dict[str, list[Floats]] = defaultdict(list)
    for path in sorted(PEOPLE.glob("*.flac"))[::3]:
        person, recording = path.name.split("-")[0], read_16k(path)
        people[person].append(encoder.embed(recording[: 5 * ENCODER_RATE]))
    names = [person for person, prints in people.items() for _ in prints]
    prints = np.concatenate(list(people.values()))
    likeness, same = prints @ prints.T, np.equal.outer(names, names)
    own = likeness[same & ~np.eye(len(names), dtype=bool)].mean()
    assert own > likeness[~same].mean() + 0.2
