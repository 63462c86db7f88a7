"""relay.speaking.tags: tags that nobody asked for, in a text that comes in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.speaking.sentences import SentenceCutter
from relay.speaking.tags import MAX_LENGTH, Tag, TagReader

PARTS = st.sampled_from(
    ["<", ">", "</", "/>", "<!--", "-->", "b", "break", " ", "\n", "time", "=", '"1s"', "'", "a.", "3"]
)


def cut(text: str) -> list[tuple[str, int, int]]:
    """What is spoken of a text, and where it stands in it."""
    cutter = SentenceCutter()
    return [(each.text, each.start, each.end) for each in [*cutter.push(text), *cutter.end()]]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<b>Hello</b> there.", ["Hello there."]),
        ('<speak>Hi <break time="1s"/> you<break\n time="1s"/>two.</speak>', ["Hi you two."]),
        ('<a href="c=1, d" title="A. B. C">Link text.</a> More.', ["Link text.", "More."]),
        ("<!-- A comment. With words. --> Yes.", ["Yes."]),
        ("<?xml version='1.0'?><p>One.</p><p>Two.</p>", ["One.", "Two."]),
        ("Hel<b>lo</b> world", ["Hello world"]),
        ("<b></b><br/>", []),
        ("a < b and c <d", ["a < b and c <d"]),
        ("I <3 you", ["I <3 you"]),
        ("x<y and y>z", ["x<y and y>z"]),
        ("an unclosed <b and more", ["an unclosed <b and more"]),
    ],
)
def test_tags_are_left_out_and_everything_else_is_spoken(text: str, spoken: list[str]) -> None:
    """Whole tags only: a comparison, a heart and what was never closed are text."""
    assert [each for each, _, _ in cut(text)] == spoken


def test_a_span_is_that_of_the_written_text() -> None:
    """With the tags that stand within it."""
    assert cut("<p>Hel<b>lo</b> you.</p>") == [("Hello you.", 3, 20)]


@given(st.lists(PARTS, max_size=40), st.lists(st.integers(1, 5), max_size=60))
def test_it_does_not_matter_how_a_text_comes(parts: list[str], sizes: list[int]) -> None:
    """The same sentences, whatever the messages it came in."""
    text = "".join(parts)
    cutter, rest, heard = SentenceCutter(), text, []
    for size in sizes:
        heard += cutter.push(rest[:size])
        rest = rest[size:]
    heard += [*cutter.push(rest), *cutter.end()]
    assert [(each.text, each.start, each.end) for each in heard] == cut(text)


@given(st.lists(PARTS, max_size=60))
def test_nothing_is_lost_but_tags(parts: list[str]) -> None:
    """What is given back and what was left out are as long as the text, and in its order."""
    text, place, reader = "".join(parts), 0, TagReader()
    for piece in [*(piece for character in text for piece in reader.push(character)), *reader.flush()]:
        if isinstance(piece, Tag):
            assert text[place] == "<"
            assert text[place + piece.length - 1] == ">"
            place += piece.length
        else:
            assert piece == text[place]
            place += 1
    assert place == len(text)


def test_what_may_be_a_tag_is_not_waited_for_for_ever() -> None:
    """Beyond the longest tag it is text."""
    reader = TagReader()
    text = "<a title='" + "x" * (MAX_LENGTH - 10)
    assert [piece for character in text for piece in reader.push(character)] == list(text)
