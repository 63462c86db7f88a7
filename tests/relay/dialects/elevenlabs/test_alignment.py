"""Tiles: every character once, in order, and not a millisecond lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.dialects.elevenlabs.alignment import Aligner, Tile
from relay.speaking.events import Audio, Word

CHUNK_S = 0.08


def speak(aligner: Aligner, sentences: list[tuple[int, list[Word], float]]) -> list[Tile]:
    """Sentences with words and a length in seconds, in chunks that carry the words that are complete."""
    tiles: list[Tile] = []
    start_s = 0.0
    for number, (_, words, length_s) in enumerate(sentences):
        chunks = max(1, round(length_s / CHUNK_S))
        left = list(words)
        for chunk in range(chunks):
            last = chunk == chunks - 1
            end_s = start_s + CHUNK_S
            due = tuple(word for word in left if last or word.end_s <= end_s)
            left = left[len(due) :]
            pcm = bytes(2 * round(24_000 * CHUNK_S))
            audio = Audio("c", 1, number, chunk, pcm, last=last, start_s=start_s, ready_at=0, ttfa_ms=0, words=due)
            tile = aligner.take(audio)
            tiles += [tile] if tile is not None else []
            start_s = end_s
    return tiles


def place(text: str, start_s: float, word_s: float = 0.2, gap_s: float = 0.03) -> list[Word]:
    """Words of a text, one after the other."""
    words, position = [], 0
    for spelt in text.split():
        start = text.index(spelt, position)
        position = start + len(spelt)
        words.append(Word(spelt, start, position, start_s, start_s + word_s))
        start_s += word_s + gap_s
    return words


def test_the_words_of_a_sentence_are_spelt_as_they_were_written() -> None:
    """Characters join to the text; a word's own begin and end where the word does."""
    text = "Naïve café, twice."
    aligner = Aligner()
    aligner.push(text)
    aligner.begin(0, 0, len(text))
    words = place(text, 0.04)
    tiles = speak(aligner, [(0, words, 0.88)])
    assert "".join(char for tile in tiles for char in tile.chars) == text
    starts = [ms for tile in tiles for ms in tile.starts_ms]
    assert [starts[word.start] for word in words] == [round(1000 * word.start_s) for word in words]
    assert tiles[-1].end_ms == 880


def test_a_closing_space_lasts_as_long_as_the_sentence() -> None:
    """Clients that end a word at a space get one, although the text has none; it is not given twice."""
    aligner = Aligner(closing_space=True)
    aligner.push("One.")
    aligner.begin(0, 0, 4)
    first = speak(aligner, [(0, place("One.", 0.0), 0.4)])
    assert "".join(first[-1].chars) == "One. "
    assert (first[-1].starts_ms[-1], first[-1].ends_ms[-1]) == (200, 400)
    aligner.push(" Two.")
    aligner.begin(1, 5, 9)
    word = Word("Two.", 5, 9, 0.45, 0.6)
    audio = Audio("c", 1, 1, 0, bytes(9600), last=True, start_s=0.4, ready_at=0, ttfa_ms=0, words=(word,))
    tile = aligner.take(audio)
    assert tile is not None
    assert "".join(tile.chars) == "Two. "
    assert (tile.start_ms, tile.starts_ms[0], tile.end_ms) == (400, 450, 600)


def test_what_has_no_sound_is_spelt_without_taking_time() -> None:
    """An emoji between sentences, and one at the end, are neither lost nor heard."""
    text = "Hello 😀 there. 🎉"
    aligner = Aligner()
    aligner.push(text)
    aligner.begin(0, 0, 14)
    words = [Word("Hello", 0, 5, 0.0, 0.3), Word("there.", 8, 14, 0.4, 0.7)]
    tiles = speak(aligner, [(0, words, 0.8)])
    rest = aligner.rest()
    assert rest is not None
    assert "".join(char for tile in [*tiles, rest] for char in tile.chars) == text
    assert rest.start_ms == rest.end_ms == 800


def test_a_sentence_without_words_is_spread_over_its_sound() -> None:
    """A worker that says nothing of words costs precision, not text."""
    aligner = Aligner()
    aligner.push("Plain words.")
    aligner.begin(0, 0, 12)
    tiles = speak(aligner, [(0, [], 0.8)])
    assert "".join(tiles[0].chars) == "Plain words."
    assert (tiles[0].starts_ms[0], tiles[0].end_ms) == (0, 800)


def test_speed_and_silence_move_all_times() -> None:
    """What is spoken twice as fast takes half the time; silence that was put in does not."""
    aligner = Aligner(speed=2.0)
    aligner.push("One. Two.")
    aligner.begin(0, 0, 4)
    first = speak(aligner, [(0, place("One.", 0.0), 0.8)])
    aligner.pause(1.5)
    aligner.begin(1, 5, 9)
    word = Word("Two.", 5, 9, 0.8, 1.0)
    audio = Audio("c", 1, 1, 0, bytes(9600), last=True, start_s=0.8, ready_at=0, ttfa_ms=0, words=(word,))
    second = aligner.take(audio)
    assert first[-1].end_ms == 400
    assert second is not None
    assert (second.starts_ms[0], second.end_ms) == (1900, 2000)


def test_white_space_of_any_kind_is_a_space() -> None:
    """A line end separates words too, for clients that look for spaces."""
    aligner = Aligner()
    aligner.push("one\ntwo")
    aligner.begin(0, 0, 7)
    tiles = speak(aligner, [(0, place("one\ntwo", 0.0), 0.48)])
    assert "".join(char for tile in tiles for char in tile.chars) == "one two"


_WORDS = st.lists(st.text("abcé'-", min_size=1, max_size=8), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(
    sentences=st.lists(_WORDS, min_size=1, max_size=40),
    speed=st.sampled_from([0.7, 1.0, 1.1, 1.2]),
    closing_space=st.booleans(),
    jitter=st.lists(st.floats(-0.05, 0.05), min_size=8, max_size=8),
)
def test_tiles_follow_one_another_however_long_it_takes(
    sentences: list[list[str]], speed: float, closing_space: bool, jitter: list[float]
) -> None:
    """Equal lengths, never back in time, each tile where the one before ended, all of them as long as the audio: a
    clock that adds them up is exact after minutes as it was at first."""
    aligner = Aligner(speed=speed, closing_space=closing_space)
    text = " ".join(" ".join(words) + "." for words in sentences)
    aligner.push(text)
    spoken: list[tuple[int, list[Word], float]] = []
    position, start_s = 0, 0.0
    for number, words in enumerate(sentences):
        sentence = " ".join(words) + "."
        placed = [
            Word(word.text, position + word.start, position + word.end, word.start_s + wobble, word.end_s + wobble)
            for index, word in enumerate(place(sentence, start_s + 0.05))
            for wobble in [jitter[index % len(jitter)]]
        ]
        length_s = CHUNK_S * round((0.23 * len(words) + 0.3) / CHUNK_S)
        aligner.begin(number, position, position + len(sentence))
        spoken.append((number, placed, length_s))
        position += len(sentence) + 1
        start_s += length_s
    tiles = speak(aligner, spoken)
    clock_ms = 0
    for tile in tiles:
        assert len(tile.chars) == len(tile.starts_ms) == len(tile.ends_ms) > 0
        assert tile.start_ms == clock_ms <= tile.starts_ms[0]
        edges = [edge for pair in zip(tile.starts_ms, tile.ends_ms, strict=True) for edge in pair]
        assert edges == sorted(edges)
        clock_ms = tile.end_ms
    assert clock_ms == round(1000 * start_s / speed)
    joined = "".join(char for tile in tiles for char in tile.chars)
    assert joined == text + (" " if closing_space else "")


@pytest.mark.parametrize("closing_space", [True, False])
def test_a_minute_of_speech_ends_to_the_millisecond(closing_space: bool) -> None:
    """No rounding adds up: after 75 s of odd lengths the clock stands where the audio does."""
    aligner = Aligner(speed=1.1, closing_space=closing_space)
    sentence = "Seven odd words are said here again. "
    aligner.push(sentence * 40)
    clock_ms = 0
    for number in range(40):
        start_s = number * 45_037 / 24_000
        start = number * len(sentence)
        aligner.begin(number, start, start + len(sentence) - 1)
        words = tuple(
            Word(w.text, start + w.start, start + w.end, w.start_s, w.end_s) for w in place(sentence, start_s + 0.013)
        )
        audio = Audio(
            "c", 1, number, 0, bytes(2 * 45_037), last=True, start_s=start_s, ready_at=0, ttfa_ms=0, words=words
        )
        tile = aligner.take(audio)
        assert tile is not None
        # What a client does that keeps a clock: it adds the end of the last character, counted from the tile's start.
        clock_ms += tile.ends_ms[-1] - tile.start_ms
    assert clock_ms == round(1000 * 40 * 45_037 / 24_000 / 1.1)
