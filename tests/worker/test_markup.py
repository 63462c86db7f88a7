"""worker.text.markup: tags that nobody asked for are not read out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.text.markup import silence_markup
from worker.text.phonemes import Phonemizer

phonemizer = Phonemizer()

HOSTILE = (
    *("<" * 50_000, "<a " * 17_000, "<!--" * 12_500, "<a" + " " * 50_000, "<a b=" * 10_000, '<a b="' * 8_000),
    *("<a" + " b=c" * 12_000, "<b>" * 17_000, "&amp" * 12_500, "</" * 25_000),
)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<b>Hello</b> there", "Hello there"),
        ('<break time="1s"/>Hello', "Hello"),
        ("One.<break time='500ms' strength=weak />Two.", "One. Two."),
        ("<speak>Hi</speak>", "Hi"),
        ('<prosody rate="slow" pitch="-2st">Slowly now.</prosody>', "Slowly now."),
        ("Hello<br>world", "Hello world"),
        ("<p>One</p><p>Two</p>", "One Two"),
        ("un<b>believ</b>able", "unbelievable"),
        ("<a href='https://example.com/x?y=1'>this</a> link", "this link"),
        ("<!-- not for you -->Yes", "Yes"),
        ('<?xml version="1.0"?><!DOCTYPE html>Yes', "Yes"),
        ("<amazon:effect name='whispered'>Quiet</amazon:effect>", "Quiet"),
        ("Tom &amp; Jerry&nbsp;say &quot;hi&quot;", 'Tom & Jerry say "hi"'),
        ("AT&amp;T", "AT&T"),
    ],
)
def test_tags_are_silent(text: str, plain: str) -> None:
    """A text with tags and entities is read as the text without them."""
    assert phonemizer.phonemes(text) == phonemizer.phonemes(plain)


@pytest.mark.parametrize(
    "text",
    ["a < b", "a<b", "I <3 you", "5<6 and 7>6", "x<y and y>z", "This <unclosed text here.", "<", "< b >", "a <- b"],
)
def test_what_is_no_tag_is_left_alone(text: str) -> None:
    """Comparisons, hearts, arrows and a tag without an end stay in the text."""
    assert silence_markup(text) == text


def test_a_comparison_is_said() -> None:
    """A sign that belongs to no tag is read out."""
    assert phonemizer.phonemes("a < b") == phonemizer.phonemes("a less than b")


@pytest.mark.parametrize("text", ["<b></b>", '<break time="1s"/>', "<speak> </speak>", "<!-- x -->"])
def test_nothing_but_tags_has_no_sound(text: str) -> None:
    """A text of tags has nothing to say."""
    assert phonemizer.ids(text) == []


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="<>/!-? ab=\"'&;ampltn\n", max_size=200))
def test_a_silenced_text_is_as_long_as_before(text: str) -> None:
    """Whatever is in it: places in the one are places in the other."""
    assert len(silence_markup(text)) == len(text)


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:8] for text in HOSTILE])
def test_no_text_takes_long(text: str) -> None:
    """Fifty thousand characters of any kind are searched in a time that is far from that of a runaway rule."""
    began = time.process_time()
    silence_markup(text)
    assert time.process_time() - began < 5
