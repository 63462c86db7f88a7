"""worker.training.judging.picture and listening: what one sees and hears of a sentence."""

from __future__ import annotations

import io
import re
import struct
import zlib

import numpy as np
import pytest
import soundfile

from worker.training.judging.listening import Chapter, Clip, Row, choose_evenly, encode_mp3, write_page
from worker.training.judging.picture import draw_spectrogram, encode_png, palette

TONE = (0.3 * np.sin(2 * np.pi * 3000 * np.arange(24_000) / 24_000)).astype(np.float32)


def _read_png(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and palette of the kind of PNG that is written here, every checksum checked."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(content):
        length, name = struct.unpack(">I4s", content[place : place + 8])
        body = content[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", content[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(name + body)
        chunks[name] = body
        place += 12 + length
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert kind == [8, 3, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    assert chunks[b"IEND"] == b""
    return rows[:, 1:], np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)


def test_an_image_comes_back_as_it_was_written() -> None:
    """A PNG holds the pixels and the colours that it was given, with right checksums."""
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    read, colours = _read_png(encode_png(pixels, palette()))
    assert (read == pixels).all()
    assert (colours == palette()).all()


def test_a_pixel_without_a_colour_is_refused() -> None:
    """A pixel beyond the palette would be a broken file."""
    with pytest.raises(ValueError, match="colour"):
        encode_png(np.full((2, 2), 9, np.uint8), palette()[:9])


def test_a_tone_is_a_line_at_its_height() -> None:
    """A pure tone is brightest in one row all along; twice as low a tone lies lower in the picture."""
    high, low = (_read_png(draw_spectrogram(wav))[0] for wav in (TONE, np.repeat(TONE, 2)))
    assert high.shape == (80, 50)
    rows = high[:, 5:-5].argmax(axis=0)
    assert len(set(rows.tolist())) == 1
    assert low[:, 5:-5].argmax(axis=0).min() > rows.max()


def test_sound_in_the_page_can_be_decoded() -> None:
    """The sound is an MP3 of about the same length and loudness."""
    samples, rate = soundfile.read(io.BytesIO(encode_mp3(TONE)))
    assert rate == 24_000
    assert abs(len(samples) - len(TONE)) < 3000
    assert np.sqrt(np.mean(samples**2)) == pytest.approx(0.21, abs=0.03)


def test_the_page_stands_alone_and_escapes_what_was_said() -> None:
    """One file with everything inside: no address of another one, and no text that turns into markup."""
    row = Row("Is 1 < 2 & <b>?", [Clip("output", TONE, "likeness 0.80"), Clip("recording", TONE)])
    page = write_page("Voice <x>", [("likeness", "0.8")], [Chapter("s1", Clip("reference", TONE), [row])])
    assert page.count("<audio") == page.count("<img") == 3
    assert "Is 1 &lt; 2 &amp; &lt;b&gt;?" in page
    assert not re.search(r"https?://|<script|<x>|<b>", page)
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]{0,12})', page))


def test_a_page_stays_small_however_much_there_is_to_hear() -> None:
    """What would make the page too large is left out, and the page says so."""
    chapters = [Chapter(str(n), Clip("reference", TONE), [Row("a", [])]) for n in range(9)]
    page = write_page("Voice", [], chapters, most=12_000)
    assert len(page) < 12_100
    assert "Speaker 0" in page
    assert "too large" in page


def test_speakers_are_chosen_over_the_whole_list() -> None:
    """A few of many, always the same, the first and the last among them."""
    assert choose_evenly([str(n) for n in range(11)], 3) == ["0", "5", "10"]
    assert choose_evenly(["a", "b"], 6) == ["a", "b"]
