"""Text of one piece to phoneme ids."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.text.phonemes import PAD, SYMBOL_COUNT, SYMBOLS, Phonemizer, symbols_sha256

phonemizer = Phonemizer()

ODD = (
    *("**", "_x_", "😄", "é", "\ud800", "\u200b", "٣", "你好", "Привет", "[a](/b/)", "$", "%", "3rd", "10:30"),
    *("1,000.50", "½", "¹", "...", "—", "“", "’tis", "C++", "a/b", "#1", "\x00", "º", "ﬁ"),
)


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Hello there.", "həlˈO ðˈɛɹ."),
        ("I'm 21st", "ˌIm twˈɛnti fˈɜɹst"),
        ("Really?", "ɹˈiᵊli?"),
        ("hmm... well—yes", "hmm... wˈɛl—jˈɛs"),
    ],
)
def test_words_and_numbers_are_read_and_punctuation_is_kept(text: str, phonemes: str) -> None:
    """A text becomes the phonemes of its words and numbers with the marks between them."""
    assert phonemizer.phonemes(text) == phonemes


def test_ids_are_the_symbols_between_two_pads() -> None:
    """The ids of a piece are those of its phonemes, with a pad before and after."""
    assert phonemizer.ids("Yes.") == [PAD, *(SYMBOLS[symbol] for symbol in "jˈɛs."), PAD]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "🙂", "...", "—", "“”", "$", "日本語", "(!)"])
def test_what_has_no_sound_has_no_ids(text: str) -> None:
    """A piece in which nothing can be spoken has no ids at all."""
    assert phonemizer.ids(text) == []


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(ODD) | st.text(max_size=8), max_size=8).map(" ".join))
def test_any_text_becomes_known_ids_or_none(text: str) -> None:
    """Whatever the text, the ids are within the alphabet, framed by pads, without two spaces in a row."""
    ids = phonemizer.ids(text)
    assert ids == [] or (ids[0] == ids[-1] == PAD and len(ids) > 2)
    assert all(0 < number < SYMBOL_COUNT for number in ids[1:-1])
    assert "  " not in phonemizer.phonemes(text)


def test_the_symbol_table_has_one_checksum() -> None:
    """The checksum of the alphabet is a fixed function of it, and that alphabet is the teacher's."""
    assert symbols_sha256() == "248ee3192acfc27a9907180354a0efaa63389047a6ff78c3f75e2e19466d0b76"


def test_the_dictionaries_load_at_the_first_use() -> None:
    """Importing the module reads the small symbol table alone."""
    probe = "import sys, worker.text.phonemes; sys.exit('hibari.g2p' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
