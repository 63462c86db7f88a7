"""Cutting a stream of text into sentences of fewer than ten words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.speaking.sentence_boundaries import MAX_CHARACTERS, MAX_WORDS, has_sound
from relay.speaking.sentences import Sentence, SentenceCutter

WORDS = "one Two and the in St. Dr. U.S. a.m. e.g. No. 5 5, 1,000.50 3.14 J. is, well; go! what? … — – - -- ... 10:30"
ODD = "。 ！ “ ” « » ( ) ** `x` ``` # > * _a_ 😄 e\u0301 ‑ http://a.b/c?d=1. « a—b x… 你好 ？」 ، \u200b \ud800"
SPACES = [" ", " ", " ", " ", "  ", "\n", "\r\n\n", "\t", "\u3000", "\u2028", ""]

UNITS = (
    "98.6|3.14|37,0|1.000,50|1,000.50|192.168.1.1|Dr. Smith|e.g. this|i.e. that|example.com|U.S. Army|St. Louis"
    "|https://a.example/b.c?d=e.f|J. R. R. Tolkien|No. 5|Acme Inc. of|5 – 7|June 5, 2024|Mrs. Hall|Gen. Lee"
    "|v1.2.3|9:30 a.m. or|10:30|pp. 3|Poe et al. saw"
)

fragments = st.sampled_from(WORDS.split() * 2 + ODD.split()) | st.text(max_size=3)
texts = st.lists(st.tuples(fragments, st.sampled_from(SPACES)), max_size=60).map(
    lambda pairs: "".join(fragment + space for fragment, space in pairs)
)
exhaustively = settings(max_examples=400, deadline=None, derandomize=True)


def cut(pieces: Iterable[str]) -> list[Sentence]:
    cutter = SentenceCutter()
    sentences = [sentence for piece in pieces for sentence in cutter.push(piece)]
    return sentences + cutter.end()


def cut_texts(text: str) -> list[str]:
    return [sentence.text for sentence in cut([text])]


@pytest.mark.parametrize(
    "unit",
    UNITS.split("|"),
)
def test_keeps_together_what_a_mark_inside_does_not_end(unit: str) -> None:
    """A decimal, an address, a title, an abbreviation or an initial ends no sentence, wherever it stands. (TX12)"""
    for text in (f"We saw {unit} again.", f"{unit} it was.", f"Was it {unit}?"):
        assert cut_texts(text) == [text]


def test_breaks_a_clause_after_its_comma_only() -> None:
    """No break falls after a title or inside a time of day; the commas after it part the clauses. (TX13)"""
    text = "Dr. Sharma arrived at 9:30 a.m., slightly out of breath, but the meeting had already started."
    assert cut_texts(text) == [
        "Dr. Sharma arrived at 9:30 a.m.,",
        "slightly out of breath,",
        "but the meeting had already started.",
    ]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Dr. Lee met Mrs. Poe. They ate at St. Ann e.g. pie. Fine.", 3),
        ("He lives in the U.S. The rest left. J. R. R. Tolkien wrote.", 3),
        ("We met at 9 a.m. Nobody spoke at all. It was 5 p.m. then.", 3),
        ("She is on Main St. He is not. Call Jr. again.", 3),
        ("Pens, ink etc. Then paper. No. I will not.", 4),
    ],
)
def test_tells_an_abbreviation_inside_from_one_at_the_end(text: str, pieces: int) -> None:
    """An abbreviation ends its sentence only where the next word begins one. (TX14)"""
    sentences = cut([text])
    assert len(sentences) == pieces
    assert " ".join(sentence.text for sentence in sentences) == text


@pytest.mark.parametrize("length", [10, 85, 425])
def test_cuts_a_run_without_marks_between_words(length: int) -> None:
    """Words without punctuation are cut between words, all of them spoken. (TX16)"""
    text = " ".join(f"word{number}" for number in range(length))
    sentences = cut([text])
    assert " ".join(sentence.text for sentence in sentences) == text
    assert {len(sentence.text.split()) for sentence in sentences[:-1]} == {MAX_WORDS}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("I took all my old books and went home to read", "I took all my old books"),
        ("we would like to walk to the shop in town", "we would like to walk to the shop"),
        ("one two three four five six seven eight the end", "one two three four five six seven eight"),
        ("one two three four five six seven eight Dr. Poe", "one two three four five six seven eight"),
    ],
)
def test_cuts_a_run_before_a_joint(text: str, first: str) -> None:
    """A run is cut before a conjunction, else a preposition, and never after an article or a title."""
    assert cut_texts(text)[0] == first


def test_cuts_a_run_when_the_tenth_word_begins() -> None:
    """Nine words without a mark wait for the first character of a tenth, and for no more."""
    cutter = SentenceCutter()
    assert cutter.push("one two three four five six seven eight nine ") == []
    assert [sentence.text for sentence in cutter.push("t")] == ["one two three four five six seven eight nine"]


@pytest.mark.parametrize("text", ["a" * 450, "x1,5;" * 100, "词" * 401, "e\u0301" * 300])
def test_cuts_text_without_spaces_at_a_bound(text: str) -> None:
    """Text without white space is cut at a bounded number of characters and stays whole."""
    sentences = cut([text])
    assert "".join(sentence.text for sentence in sentences) == text
    assert all(len(sentence.text) <= MAX_CHARACTERS for sentence in sentences)
    assert not any(sentence.text.startswith("\u0301") for sentence in sentences)


@pytest.mark.parametrize("dash", [" — ", " – ", " - ", " -- ", "—"])
def test_speaks_what_follows_a_dash(dash: str) -> None:
    """A dash between clauses parts them, and both sides are spoken. (TX17)"""
    assert cut_texts(f"I came{dash}and saw") == [f"I came{dash}".strip(), "and saw"]


@pytest.mark.parametrize("end", ['?"', '!"', "!”", "?’", ".)", "…»", ".**", "?!”)", "!😄"])
def test_keeps_closing_marks_with_their_sentence(end: str) -> None:
    """Quotes and brackets after a mark close its sentence and begin no new one. (TX18)"""
    text = f"“My dear it turned the blade{end}"
    sentences = cut([f"{text} Yes.\n{text}\n\n{text}"])
    assert [sentence.end - sentence.start for sentence in sentences] == [len(text), 4, len(text), len(text)]


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "...", "-", "‑", "—", "😄", "🍺 🥪", "** **", "\u200b", "?!", "# -", "```", "• • •"]
)
def test_says_nothing_where_nothing_has_a_sound(text: str) -> None:
    """Marks and emoji alone make no sentence, and the numbers of the others have no gap. (TX20, TX21)"""
    assert cut([text]) == []
    sentences = cut([f"{text}\nHello.\n{text}\nYou.\n{text}"])
    assert [(sentence.number, sentence.text) for sentence in sentences] == [(0, "Hello."), (1, "You.")]


def test_ends_a_sentence_at_a_full_stop_of_another_script() -> None:
    """A wide full stop needs no white space after it, and closing marks stay with it. (TX25)"""
    assert cut_texts("你好。「今天很好！」真的吗？！是的，好") == ["你好。", "「今天很好！」", "真的吗？！", "是的，好"]
    assert cut_texts("नमस्ते। आप कैसे हैं? मैं ठीक") == ["नमस्ते।", "आप कैसे हैं?", "मैं ठीक"]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Bold** and *soft* words", ["Bold and soft words"]),
        ("**All bold.** `code` ~~gone~~", ["All bold.", "code gone"]),
        ("- one\n* two\n+ three\n> four", ["one", "two", "three", "four"]),
        ("# Head\n### Low head", ["Head", "Low head"]),
        ("```python\nprint(1)\n```\nSo", ["print(1)", "So"]),
        ("2 * 3 is snake_case, 2**3", ["2 * 3 is snake_case,", "2**3"]),
        ("1. Go on\n2. Stop", ["1. Go on", "2. Stop"]),
    ],
)
def test_does_not_read_markdown_aloud(text: str, spoken: list[str]) -> None:
    """The marks of markdown are left out of what is spoken, but not out of the span. (TX28)"""
    sentences = cut([text])
    assert [sentence.text for sentence in sentences] == spoken
    spans = [text[sentence.start : sentence.end] for sentence in sentences]
    assert "".join(filter(str.isalnum, "".join(spans))) == "".join(filter(str.isalnum, "".join(spoken)))


def test_starts_at_the_first_clause() -> None:
    """Two words and a comma are enough to begin with; later a pause needs three."""
    cutter = SentenceCutter()
    assert cutter.push("Well then,") == []
    assert cutter.push(" ") == [Sentence(0, "Well then,", 0, 10)]
    assert cutter.push("I think, therefore ") == []
    assert cutter.push("I am, ") == [Sentence(1, "I think, therefore I am,", 11, 35)]


def test_waits_for_what_follows_a_full_stop() -> None:
    """A full stop at the end of what has arrived is no end yet: a digit or a space decides."""
    cutter = SentenceCutter()
    assert cutter.push("It is 3.") == []
    assert cutter.push("14.") == []
    assert [sentence.text for sentence in cutter.push("\n")] == ["It is 3.14."]


def test_flush_speaks_what_is_there() -> None:
    """A flush speaks the rest at once, a half word included, and numbers and spans go on after it."""
    cutter = SentenceCutter()
    cutter.push(" Hello wor")
    assert cutter.flush() == [Sentence(0, "Hello wor", 1, 10)]
    assert cutter.flush() == []
    assert cutter.push("ld. ") == [Sentence(1, "ld.", 10, 13)]


def test_takes_no_text_after_the_end() -> None:
    """After the end there is nothing more to cut, and a push is an error."""
    cutter = SentenceCutter()
    cutter.push("Hi")
    assert [sentence.text for sentence in cutter.end()] == ["Hi"]
    assert cutter.end() == []
    with pytest.raises(RuntimeError):
        cutter.push("more")


@given(texts)
@exhaustively
def test_loses_nothing_and_repeats_nothing(text: str) -> None:
    """Every letter and digit is in exactly one sentence; spans are in order, tight, and apart."""
    text = re.sub("[`~]", "", text)  # the name of a code block's language is not spoken
    sentences = cut([text])
    spans = [range(sentence.start, sentence.end) for sentence in sentences]
    covered = [place for span in spans for place in span]
    assert len(covered) == len(set(covered))
    assert all(before.stop <= after.start for before, after in pairwise(spans))
    assert {place for place, character in enumerate(text) if character.isalnum()} <= set(covered)
    assert all(text[span.start : span.stop].strip() == text[span.start : span.stop] for span in spans)
    assert [sentence.number for sentence in sentences] == list(range(len(sentences)))


@given(texts)
@exhaustively
def test_keeps_every_sentence_short(text: str) -> None:
    """A sentence has a sound, fewer than ten words, a bounded length, and no white space but single spaces."""
    for sentence in cut([text]):
        assert has_sound(sentence.text)
        assert len(text[sentence.start : sentence.end].split()) <= MAX_WORDS
        assert len(sentence.text) <= MAX_CHARACTERS
        assert " ".join(sentence.text.split()) == sentence.text


@given(texts, st.data())
@exhaustively
def test_does_not_depend_on_how_the_text_arrives(text: str, data: st.DataObject) -> None:
    """The same text gives the same sentences, whole, letter by letter, or cut anywhere."""
    edges = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = [text[before:after] for before, after in pairwise([0, *edges, len(text)])]
    assert cut(pieces) == cut([text]) == cut(text)


@pytest.mark.parametrize("text", ["a", " ", "hello ", "—", "a—", "你好。", "1,", "\u0301", "😄 ", "U.S. "])
def test_keeps_only_the_unfinished_tail(text: str) -> None:
    """However long the text, what is held is no more than the longest sentence."""
    cutter = SentenceCutter()
    for _ in range(20_000 // len(text)):
        cutter.push(text)
    held = sum(sys.getsizeof(word.text) for word in cutter._words) + sys.getsizeof(cutter._word)
    assert held < 40 * MAX_CHARACTERS
    assert cutter._ready == []
