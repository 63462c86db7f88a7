"""An encoder's promises: whole samples, an exact length, one header, the same bytes however the speech was cut."""

from __future__ import annotations

import math
import subprocess
import sys
import wave
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.audio.encoding import load_codec, make_encoder
from relay.audio.formats import PCM_RATES, Codec, Format, parse_format
from relay.errors import InvalidMessage
from tests.relay.audio.listening import (
    PIECE,
    cut,
    decode,
    decode_by_libsndfile,
    encode,
    encode_pieces,
    make_voice,
)

RAW = [Codec.PCM_S16, Codec.PCM_F32, Codec.WAV, Codec.ULAW, Codec.ALAW]
BYTES_A_SAMPLE = {Codec.PCM_S16: 2, Codec.PCM_F32: 4, Codec.WAV: 2, Codec.ULAW: 1, Codec.ALAW: 1}
WAV_HEADER = 44
EVERY_CODEC = ["pcm_24000", "pcm_16000", "f32_24000", "wav_24000", "wav_8000", "ulaw_8000", "alaw_8000"]
EVERY_CODEC += ["mp3_44100_128", "opus_48000_64", "flac_24000", "aac_44100_64"]

sizes = st.lists(st.integers(1, PIECE), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(codec=st.sampled_from(RAW), rate=st.sampled_from(PCM_RATES), samples=st.integers(0, 6000), sizes=sizes)
def test_cutting_changes_nothing(codec: Codec, rate: int, samples: int, sizes: list[int]) -> None:
    """The same speech in other pieces is the same file, byte for byte, and ceil(n * rate / 24000) samples long."""
    voice, name = make_voice(samples), f"{codec}_{rate}"
    whole = encode(name, voice)
    assert encode(name, voice, sizes) == whole
    header = WAV_HEADER if codec is Codec.WAV else 0
    assert len(whole) - header == math.ceil(samples * rate / 24000) * BYTES_A_SAMPLE[codec]


@settings(max_examples=30, deadline=None)
@given(codec=st.sampled_from(RAW), rate=st.sampled_from(PCM_RATES), sizes=sizes)
def test_whole_samples(codec: Codec, rate: int, sizes: list[int]) -> None:
    """Whatever came in, what goes out ends with a whole sample (FM2)."""
    pieces = encode_pieces(f"{codec}_{rate}", cut(make_voice(5000), sizes))
    lengths = [len(piece) for piece in pieces]
    lengths[0] -= WAV_HEADER if codec is Codec.WAV else 0
    assert all(length % BYTES_A_SAMPLE[codec] == 0 for length in lengths)


def test_source_is_untouched() -> None:
    """pcm_24000 is the worker's samples themselves, each at once."""
    pieces = cut(make_voice(5000))
    assert encode_pieces("pcm_24000", pieces) == [*pieces, b""]


def test_floats() -> None:
    """f32 has the same samples as pcm, from -1 to 1."""
    voice = make_voice(5000)
    floats = np.frombuffer(encode("f32_16000", voice), "<f4")
    assert np.array_equal(floats * 32768, np.frombuffer(encode("pcm_16000", voice), "<i2"))


@pytest.mark.parametrize("rate", PCM_RATES)
@pytest.mark.parametrize("samples", [0, 1, 480, 30_000])
def test_wav(rate: int, samples: int) -> None:
    """A WAV file has one header, then the samples of pcm, and no byte more (AQ16, AQ17)."""
    voice = make_voice(samples)
    encoded, plain = encode(f"wav_{rate}", voice), encode(f"pcm_{rate}", voice)
    assert encoded[:WAV_HEADER].startswith(b"RIFF\xff\xff\xff\xffWAVE")
    assert encoded[:WAV_HEADER].endswith(b"data\xff\xff\xff\xff")
    assert encoded[WAV_HEADER:] == plain
    assert encoded.count(b"RIFF") == 1


def test_wav_is_read() -> None:
    """FFmpeg, libsndfile and Python's own reader take such a WAV file for what it is."""
    encoded = encode("wav_44100", make_voice(30_000))
    meant = np.frombuffer(encode("pcm_44100", make_voice(30_000)), "<i2")
    for rate, heard in (decode(encoded), decode_by_libsndfile(encoded)):
        assert rate == 44100
        assert np.array_equal(np.rint(heard * 32768), meant)
    with wave.open(BytesIO(encoded)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (44100, 1, 2)
        assert reader.readframes(len(meant) + 1) == meant.tobytes()


@pytest.mark.parametrize(("name", "container"), [("ulaw_8000", "mulaw"), ("alaw_8000", "alaw")])
def test_telephone(name: str, container: str) -> None:
    """What a telephone hears is the speech at 8 kHz, as good as 8 bits are."""
    voice = make_voice(24_000)
    codes = encode(name, voice)
    meant = np.frombuffer(encode("pcm_8000", voice), "<i2") / 32768
    header = b".snd" + b"".join(value.to_bytes(4, "big") for value in (24, len(codes), _AU[container], 8000, 1))
    rate, heard = decode(header + codes)
    assert rate == 8000
    assert len(heard) == len(meant)
    assert 10 * np.log10(np.sum(meant**2) / np.sum((heard - meant) ** 2)) > 35


_AU = {"mulaw": 1, "alaw": 27}


@pytest.mark.parametrize("name", EVERY_CODEC)
def test_finish_once(name: str) -> None:
    """An encoder finishes once, and takes nothing after that."""
    encoder = make_encoder(parse_format(name))
    encoder.encode(make_voice(100).tobytes())
    encoder.finish()
    with pytest.raises(RuntimeError, match="finished"):
        encoder.finish()
    with pytest.raises(RuntimeError, match="finished"):
        encoder.encode(b"\0\0")


@pytest.mark.parametrize("name", EVERY_CODEC)
def test_half_samples(name: str) -> None:
    """Half a sample is refused, and the next whole ones are taken."""
    encoder = make_encoder(parse_format(name))
    with pytest.raises(ValueError, match="whole samples"):
        encoder.encode(b"\0\0\0")
    encoder.encode(b"\0\0")
    encoder.finish()


@pytest.mark.parametrize("name", EVERY_CODEC)
def test_empty_pieces(name: str) -> None:
    """Pieces without a sample change nothing."""
    voice = make_voice(4000)
    pieces = [part for piece in cut(voice) for part in (b"", piece, b"")]
    stuffed = b"".join(encode_pieces(name, pieces))
    assert len(stuffed) == len(encode(name, voice))


@pytest.mark.parametrize("name", EVERY_CODEC)
def test_nothing_at_all(name: str) -> None:
    """A response without a sample ends as well."""
    assert len(encode(name, make_voice(0))) < 300


@pytest.mark.parametrize("name", EVERY_CODEC)
def test_neighbours(name: str) -> None:
    """Two encoders side by side know nothing of each other."""
    one, other = make_voice(20_000, seed=1), make_voice(20_000, seed=2)
    encoders = [make_encoder(parse_format(name)) for _ in range(2)]
    heard = [b"", b""]
    for pieces in zip(cut(one), cut(other), strict=True):
        for number, piece in enumerate(pieces):
            heard[number] += encoders[number].encode(piece)
    for number, voice in enumerate((one, other)):
        joined = heard[number] + encoders[number].finish()
        assert _without_serial(joined) == _without_serial(encode(name, voice))


def _without_serial(encoded: bytes) -> bytes:
    """An Ogg stream's number is its own, and so are the checksums over it."""
    pages = encoded.split(b"OggS")
    return b"OggS".join([pages[0], *[page[:10] + page[14:18] + page[22:] for page in pages[1:]]])


@pytest.mark.parametrize("speed", [0.0, 0.249, 4.001, -1.0, math.inf, -math.inf, math.nan])
def test_impossible_speeds(speed: float) -> None:
    """A speed outside 0.25 to 4 is refused with the field and the range."""
    with pytest.raises(InvalidMessage, match=r"0\.25 to 4\.0") as refused:
        make_encoder(Format(Codec.PCM_S16, 24000), speed=speed)
    assert refused.value.field == "speed"


@pytest.mark.parametrize(
    ("name", "absent"),
    [("pcm_24000", ["numpy", "soxr", "av"]), ("wav_24000", ["numpy", "soxr", "av"]), ("ulaw_8000", ["av"])],
)
def test_small_without_need(name: str, absent: list[str]) -> None:
    """A relay that nobody asks for a codec has not loaded one."""
    program = (
        "import sys; from relay.audio.encoding import make_encoder; from relay.audio.formats import parse_format\n"
        f"encoder = make_encoder(parse_format({name!r})); encoder.encode(bytes(3840)); encoder.finish()\n"
        f"print([module for module in {absent!r} if module in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "speed"), [("pcm_24000", 2.0), ("pcm_8000", 1.0), ("opus_48000_64", 1.0)])
async def test_loading(name: str, speed: float) -> None:
    """What a format needs can be loaded before the first encoder is made."""
    await load_codec(parse_format(name), speed=speed)
    make_encoder(parse_format(name), speed=speed)
    assert "relay.audio.pipeline" in sys.modules
    assert "relay.audio.compression" in sys.modules or name == "pcm_8000"
