"""SSML where it was asked for, cut wherever it may be cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.dialects.elevenlabs.markup import MAX_PAUSE_S, MAX_PAUSES_S, MAX_TAG, MarkupReader, Pause


def read(text: str, cuts: tuple[int, ...] = ()) -> list[str | Pause]:
    """The parts of a text that comes in pieces, texts that follow one another joined."""
    reader = MarkupReader()
    edges = sorted({0, *cuts, len(text)})
    parts: list[str | Pause] = []
    for start, end in itertools.pairwise(edges):
        parts += reader.push(text[start:end])
    joined: list[str | Pause] = []
    for part in [*parts, *reader.flush()]:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


@pytest.mark.parametrize(
    ("tag", "seconds"),
    [
        ('<break time="1.5s"/>', 1.5),
        ("<break time='250ms' />", 0.25),
        ("<break/>", 1.0),
        ('<BREAK TIME="2s"></BREAK>', 2.0),
        ('<break time="99s"/>', MAX_PAUSE_S),
        ('<break time="-1s"/>', 1.0),
    ],
)
def test_a_break_is_a_pause_in_its_place(tag: str, seconds: float) -> None:
    """Of its own length, within a bound."""
    assert read(f"One. {tag} Two.") == ["One. ", Pause(seconds), " Two."]


def test_other_tags_are_taken_out_and_what_they_hold_is_read() -> None:
    """A phoneme's word is spoken as it is written."""
    text = '<speak>Say <phoneme alphabet="ipa" ph="x">metformin</phoneme> now.</speak>'
    assert read(text) == ["Say metformin now."]


@pytest.mark.parametrize("text", ["a < b and c > d", "1<2", "I <3 you", "<", "open <b", "<" + "a" * (2 * MAX_TAG)])
def test_what_is_no_tag_is_text(text: str) -> None:
    """Nothing is lost that only looks like one."""
    assert read(text) == [text]


@given(cuts=st.lists(st.integers(0, 60), max_size=8))
def test_pieces_change_nothing(cuts: list[int]) -> None:
    """A tag may be cut anywhere."""
    text = 'One <break time="0.5s"/> two <emphasis>three</emphasis> <3 four.'
    assert read(text, tuple(cuts)) == read(text)


def test_all_pauses_together_are_bounded() -> None:
    """A text of breaks is no hour of silence."""
    pauses = read("<break time='3s'/>x" * 100)
    assert sum(part.seconds for part in pauses if isinstance(part, Pause)) == MAX_PAUSES_S
