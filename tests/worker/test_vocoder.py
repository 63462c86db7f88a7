"""The vocoder of the base bundle: streams, and what they sound like."""

import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.fit import VOCODERS
from worker.sv2tts.mel import FMAX, HOP_LENGTH, N_MELS, SAMPLE_RATE, Floats, hz_to_mel, log_mel, mel_to_hz
from worker.sv2tts.source import (
    FULL,
    GRIDS,
    NARROW,
    Grid,
    PulseSource,
    cut_frames,
    frame_spectra,
    noise_spectra,
    sum_harmonics,
)
from worker.sv2tts.vocoder import LOOK_AHEAD, Vocoder

ROOT = Path(__file__).parents[2]

DIGEST = """
import hashlib, sys
from pathlib import Path
import numpy as np
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.vocoder import Vocoder
stream = Vocoder(Bundle.load(Path(sys.argv[1])), graph=sys.argv[3]).start()
mel = np.load(sys.argv[2])
digest = hashlib.sha256()
for start in range(0, len(mel), 8):
    digest.update(stream.push(mel[start : start + 8], final=start + 8 >= len(mel)).tobytes())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module", params=tuple(VOCODERS))
def graph(request: pytest.FixtureRequest) -> str:
    """Every promise is made for both vocoders."""
    return str(request.param)


@pytest.fixture(scope="module")
def vocoder(graph: str) -> Vocoder:
    return Vocoder(Bundle.load(ROOT / "bundles" / "base"), graph=graph)


@pytest.fixture(scope="module")
def mel() -> Floats:
    samples, _ = soundfile.read(ROOT / "samples" / "reference-high.wav", dtype="float32")
    return log_mel(samples[:72_000])


def stream_pieces(vocoder: Vocoder, mel: Floats, *sizes: int) -> list[Floats]:
    stream, start, pieces = vocoder.start(), 0, []
    for size in itertools.cycle(sizes):
        pieces.append(stream.push(mel[start : start + size], final=start + size >= len(mel)))
        start += size
        if start >= len(mel):
            return pieces
    raise AssertionError("no sizes")


@pytest.mark.parametrize("sizes", [(1,), (8,), (3, 0, 17, 2), (50,)])
def test_a_stream_is_the_whole(vocoder: Vocoder, mel: Floats, sizes: tuple[int, ...]) -> None:
    """However the frames are cut, the samples are bit for bit those of one push of all frames, 240 a frame."""
    whole = vocoder.start().push(mel, final=True)
    streamed = np.concatenate(stream_pieces(vocoder, mel, *sizes))
    assert len(whole) == len(streamed) == len(mel) * HOP_LENGTH
    assert np.array_equal(streamed, whole)


def test_sound_comes_as_frames_do(vocoder: Vocoder, mel: Floats) -> None:
    """A stream is never more than the look-ahead and three frames behind what it was given."""
    given = made = 0
    for piece in stream_pieces(vocoder, mel, 8):
        given, made = given + 8, made + len(piece)
        assert made >= (given - LOOK_AHEAD - 3) * HOP_LENGTH or given >= len(mel)


@pytest.mark.parametrize("frames", [0, 1, 2, 5, 9])
def test_the_shortest_utterances_are_complete(vocoder: Vocoder, mel: Floats, frames: int) -> None:
    """An utterance of fewer frames than the look-ahead, even of none, has 240 samples a frame."""
    assert len(vocoder.start().push(mel[:frames], final=True)) == frames * HOP_LENGTH


def test_the_end_may_come_alone(vocoder: Vocoder, mel: Floats) -> None:
    """A final push without frames gives what was held back."""
    stream = vocoder.start()
    first = stream.push(mel)
    assert len(first) + len(stream.push(mel[:0], final=True)) == len(mel) * HOP_LENGTH


def test_a_finished_stream_takes_no_more(vocoder: Vocoder, mel: Floats) -> None:
    """After its final frames a stream refuses others."""
    stream = vocoder.start()
    stream.push(mel[:8], final=True)
    with pytest.raises(ValueError, match="start another stream"):
        stream.push(mel[:8])


def test_another_process_makes_the_same_bits(vocoder: Vocoder, graph: str, mel: Floats, tmp_path: Path) -> None:
    """The same frames cut in the same way are the same bits in another process."""
    np.save(tmp_path / "mel.npy", mel)
    command = [sys.executable, "-c", DIGEST, str(ROOT / "bundles" / "base"), str(tmp_path / "mel.npy"), graph]
    elsewhere = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    pieces = stream_pieces(vocoder, mel, 8)
    assert hashlib.sha256(b"".join(piece.tobytes() for piece in pieces)).hexdigest() == elsewhere


def test_two_streams_do_not_touch(vocoder: Vocoder, mel: Floats) -> None:
    """Streams of one vocoder that are pushed in turn give what each gives alone."""
    first, second = vocoder.start(), vocoder.start()
    turns = [(first.push(mel[:40]), second.push(mel[60:100])), (first.push(mel[40:60]), second.push(mel[100:120]))]
    alone = vocoder.start()
    assert np.array_equal(turns[0][0], alone.push(mel[:40]))
    assert np.array_equal(turns[1][0], alone.push(mel[40:60]))


def test_sound_has_the_spectrum_it_was_made_of(vocoder: Vocoder, mel: Floats) -> None:
    """The log-mel of the sound is that of the frames to 0.6 neper on average where there is speech."""
    again = log_mel(vocoder.start().push(mel, final=True))
    speech = mel.mean(axis=1) > -7
    bands = mel_to_hz(np.linspace(0, hz_to_mel(np.array([FMAX]))[0], N_MELS + 2))[2:] < vocoder.grid.rate / 2 - 200
    assert np.abs(again - mel)[speech][:, bands].mean() < 0.6


def test_the_cheaper_vocoder_has_nothing_above_eight_kilohertz(mel: Floats) -> None:
    """What is 16 kHz inside comes out at 24 kHz with the octave above 8.1 kHz empty: 50 dB below the rest."""
    narrow = Vocoder(Bundle.load(ROOT / "bundles" / "base"), graph="vocoder_16k")
    power = np.abs(np.fft.rfft(narrow.start().push(mel, final=True))) ** 2
    above = np.linspace(0, SAMPLE_RATE / 2, len(power)) > 8_100
    assert power[above].sum() < 1e-5 * power.sum()


def test_the_cheaper_vocoder_says_the_same(mel: Floats) -> None:
    """Below 8 kHz both vocoders sound alike: their log-mels differ by less than 0.5 neper where there is speech."""
    bundle = Bundle.load(ROOT / "bundles" / "base")
    full, narrow = (log_mel(Vocoder(bundle, graph=graph).start().push(mel, final=True)) for graph in VOCODERS)
    speech = mel.mean(axis=1) > -7
    assert np.abs(full - narrow)[speech, :68].mean() < 0.5


def test_silence_stays_silent(vocoder: Vocoder) -> None:
    """Frames of silence make no sound above -60 dBFS."""
    silence = np.full((60, N_MELS), np.log(1e-5), np.float32)
    assert np.abs(vocoder.start().push(silence, final=True)).max() < 1e-3


def test_a_batch_is_its_rows(graph: str, mel: Floats) -> None:
    """The graph predicts each row of a batch as if it were alone."""
    session = Bundle.load(ROOT / "bundles" / "base").session(graph)
    cache = np.zeros((2, *session.get_inputs()[1].shape[1:]), np.float32)
    pair = np.stack([mel[:40], mel[100:140]])
    together = session.run(None, {"mel": pair, "cache": cache})
    for row in range(2):
        alone = session.run(None, {"mel": pair[row : row + 1], "cache": cache[:1]})
        for both, one in zip(together, alone, strict=True):
            assert np.allclose(both[row], one[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("grid", GRIDS.values())
def test_pulses_go_on_across_calls(grid: Grid) -> None:
    """A pulse train that is asked for in pieces is the one asked for at once, silent where unvoiced."""
    pitch = np.linspace(90, 210, 30).astype(np.float32)
    voiced = np.arange(30) % 11 > 2
    whole = PulseSource(grid).extend(pitch, voiced)
    source = PulseSource(grid)
    pieces = np.concatenate([source.extend(pitch[:7], voiced[:7]), source.extend(pitch[7:], voiced[7:])])
    assert np.array_equal(whole, pieces)
    assert len(whole) == 29 * 2 * grid.hop
    assert not whole[: 2 * 2 * grid.hop].any()


def test_both_rates_have_the_same_pulses() -> None:
    """The pulse trains of both rates are the same signal up to 7.9 kHz: their spectra agree over the frame's length."""
    pitch, voiced = np.full(60, 150, np.float32), np.ones(60, np.bool_)
    levels = []
    for grid in (FULL, NARROW):
        spectra = (
            np.abs(frame_spectra(cut_frames(PulseSource(grid).extend(pitch, voiced), grid), grid)[:, :100]) / grid.rate
        )
        levels.append(
            np.interp(np.arange(100, 4_000, 50), np.arange(100) * grid.rate / grid.transform, spectra.mean(0))
        )
    assert np.allclose(levels[0], levels[1], rtol=0.2, atol=levels[0].max() * 0.05)


def test_harmonics_add_up() -> None:
    """The closed form of the pulse train is the sum of its cosines."""
    phase = np.linspace(0, 3, 200)
    sum_of_cosines = sum(np.cos(2 * np.pi * number * phase) for number in range(1, 12))
    assert np.allclose(sum_harmonics(phase, np.full(200, 1050.0), 11_900.0), sum_of_cosines, atol=1e-2)


@pytest.mark.parametrize("grid", GRIDS.values())
def test_noise_is_a_function_of_the_frame(grid: Grid) -> None:
    """The noise of a frame is the same whichever frames are asked for with it, and white on the whole."""
    assert np.array_equal(noise_spectra(990, 20, grid)[12], noise_spectra(1002, 1, grid)[0])
    power = np.mean(np.abs(noise_spectra(0, 1000, grid)) ** 2, axis=0)[3:-3]
    assert power.std() / power.mean() < 0.2
