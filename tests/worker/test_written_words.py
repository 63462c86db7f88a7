"""worker.text.reading and the phonemizer: where the words of a text sound in its phonemes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.text.normalise import LONGEST_PIECE
from worker.text.phonemes import PAD, SYMBOLS, Phonemizer

phonemizer = Phonemizer()
LETTERS = {number: symbol for symbol, number in SYMBOLS.items()}
QUIET = set(';:,.!?—…"()“” ')

SPOKEN_AS: list[tuple[str, dict[str, str]]] = [
    ("Hello there.", {"Hello": "Hello", "there.": "there"}),
    ("It costs $1.50 today", {"$1.50": "one dollar and fifty cents", "today": "today"}),
    ("The price will be $100 after 9:30PM.", {"$100": "one hundred dollars", "9:30PM.": "nine thirty P.M."}),
    ("Dr. Smith lives on Elm Dr.", {"Dr.": "Doctor", "Smith": "Smith", "Elm": "Elm"}),
    ("See https://example.com/x now", {"https://example.com/x": "example dot com slash x", "now": "now"}),
    ("He said “never,” quietly", {"“never,”": "never", "quietly": "quietly"}),
    ("wow 🎉 great", {"wow": "wow", "great": "great"}),
    ("well — then", {"well": "well", "then": "then"}),
    ("1½ cups", {"1½": "one and a half", "cups": "cups"}),
    ("from 5 - 10 people", {"5": "five", "-": "/tə/", "10": "ten", "people": "people"}),
    ("<b>Hello</b> you", {"<b>Hello</b>": "Hello", "you": "you"}),
    ('<break time="1s"/>Hello you', {'time="1s"/>Hello': "Hello", "you": "you"}),
    ("你好 hello 世界", {"hello": "hello"}),
    ("a \u00a0 b\u2003c", {"a": "a", "b": "b", "c": "c"}),
]
"""Text, and by written word what is said for it, or between slashes its phonemes."""


ODD = (
    *(
        "Dr.",
        "$1.50",
        "9:30PM",
        "—",
        "-",
        "🎉",
        "“yes”",
        "1/2",
        "½",
        "e.g.",
        "https://a.com/b",
        "(555) 123-4567",
        "...",
    ),
    *(
        "10",
        "km",
        "VIII",
        "Henry",
        "don't",
        "A",
        "B,",
        "\x00",
        "\u200b",
        "\ud800",
        "你好",
        "<b>x</b>",
        "<i>",
        "&amp;",
        "²",
    ),
    *("June 5, 2024", "No. 7", "x" * 450, "1," * 210, "St.", "Rs. 500", "*", "_x_", "a\u00a0b", "-$5", "~10", "+"),
)


def written_spans(text: str) -> dict[int, str]:
    """By the number of each word that sounds the phonemes of its span."""
    reading = phonemizer.read(text)
    return {
        span.word: "".join(LETTERS[number] for number in reading.ids[span.first : span.last + 1])
        for span in reading.words
    }


def plain(phonemes: str) -> str:
    """Phonemes without stress, which differs with the company of a word, and without marks."""
    return "".join(symbol for symbol in phonemes if symbol not in QUIET and symbol not in "ˈˌ")


@pytest.mark.parametrize(("text", "words"), SPOKEN_AS, ids=[text for text, _ in SPOKEN_AS])
def test_each_written_word_is_where_it_is_said(text: str, words: dict[str, str]) -> None:
    """A price, a time, an address, a bracketed tag: whatever becomes of a word, its span is what is said for it."""
    spans = written_spans(text)
    written = text.split()
    for number, word in enumerate(written):
        if written.count(word) == 1 and word in words:
            wanted = words[word][1:-1] if words[word].startswith("/") else phonemizer.phonemes(words[word])
            assert plain(spans[number]) == plain(wanted), word


@pytest.mark.parametrize(
    ("text", "silent"),
    [("wow 🎉 great", ["🎉"]), ("well — then", ["—"]), ("so , then !", [",", "!"]), ("<b> Hi </b>", ["<b>", "</b>"])],
)
def test_what_has_no_sound_has_no_span(text: str, silent: list[str]) -> None:
    """A dash, an emoji, a lone mark, a tag is no word."""
    spans = written_spans(text)
    assert [word for number, word in enumerate(text.split()) if number not in spans] == silent


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(ODD) | st.text(max_size=6), max_size=9).map(" ".join))
def test_spans_are_in_order_apart_and_cover_every_sound(text: str) -> None:
    """Whatever the text: each word at most once, none within another, none over its marks, and no sound without one."""
    reading = phonemizer.read(text)
    words = [span.word for span in reading.words]
    assert words == sorted(set(words))
    assert all(number < len(text.split()) for number in words)
    covered: set[int] = set()
    for span in reading.words:
        assert 0 < span.first <= span.last < len(reading.ids) - 1
        assert not covered or span.first > max(covered) + 1
        assert LETTERS[reading.ids[span.first]] not in QUIET
        assert LETTERS[reading.ids[span.last]] not in QUIET
        covered |= set(range(span.first, span.last + 1))
    for place, number in enumerate(reading.ids):
        if number != PAD and LETTERS[number] not in QUIET | set("ˈˌː"):
            assert place in covered


def test_words_of_a_long_text_keep_their_numbers() -> None:
    """Over the borders of the pieces in which it is read, also where a word is cut."""
    text = " ".join(f"word{number}" for number in range(200)) + " " + "z" * (LONGEST_PIECE + 90) + " $5 end"
    spans = written_spans(text)
    assert sorted(spans) == list(range(203))
    assert plain(spans[201]) == plain(phonemizer.phonemes("five dollars"))
    assert plain(spans[202]) == plain(phonemizer.phonemes("end"))


def test_words_of_a_lexicon_have_their_spans(tmp_path: Path) -> None:
    """A reading of the user's, of several words, belongs to the word it is for."""
    path = tmp_path / "lexicon.txt"
    path.write_text("Timbrelay\ttimber relay\n", encoding="utf-8")
    own = Phonemizer(path)
    reading = own.read("My Timbrelay, please.")
    (said,) = [span for span in reading.words if span.word == 1]
    assert plain("".join(LETTERS[number] for number in reading.ids[said.first : said.last + 1])) == plain(
        phonemizer.phonemes("timber relay")
    )
