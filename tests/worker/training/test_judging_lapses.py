"""worker.training.judging.lapses: what is lost, repeated or invented, and what is only misheard."""

from __future__ import annotations

import pytest

from worker.training.judging.lapses import Lapse, align_words, differing_stretches, find_lapses


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("the train leaves at nine", "the train leaves at nine"),
        ("someone walked along the river", "some one walked along the river"),
        ("we can walk along the river", "we can walk along river"),
        ("a basket of bread", "the basket of bread"),
        ("she is very very tired", "she is very very tired"),
        ("he saw the gullet being cut", "he saw the gallet being caught"),
    ],
)
def test_a_word_that_is_misheard_is_no_lapse(said: str, heard: str) -> None:
    """Other letters, a split word, a dropped article and a repetition that was asked for are not held against a
    voice."""
    assert find_lapses(said.split(), heard.split()) == []


@pytest.mark.parametrize(
    ("said", "heard", "lapse"),
    [
        ("the train leaves at half past nine", "the train leaves at half", Lapse.LOST),
        ("please leave your name and number", "please leave and number", Lapse.LOST),
        ("thank you for waiting", "thank you for waiting in the hall", Lapse.ADDED),
        ("m", "thank you", Lapse.ADDED),
        ("have you ever been there", "have you ever have you ever been there", Lapse.REPEATED),
        ("the fox jumps", "the the fox jumps", Lapse.REPEATED),
        ("yes", "", Lapse.SILENT),
        ("one two three four five", "ape bad cat dog five", Lapse.BABBLED),
    ],
)
def test_what_is_lost_repeated_or_invented_is_a_lapse(said: str, heard: str, lapse: Lapse) -> None:
    """Letters that went missing or came in, runs of words twice, silence and babble are named."""
    assert lapse in find_lapses(said.split(), heard.split())


def test_pieces_of_a_wrong_length_are_lapses_whatever_was_heard() -> None:
    """A piece that was cut short or ran on counts even when the recogniser made sense of it."""
    assert find_lapses(["yes"], ["yes"], cut_short=1) == [Lapse.CUT_SHORT]
    assert find_lapses(["yes"], ["yes"], running_on=2) == [Lapse.RUNNING_ON]


def test_of_a_lone_letter_something_is_added_only_when_there_was_time_for_it() -> None:
    """What a recogniser makes of a sound no longer than the letter is no addition."""
    assert find_lapses(["r"], ["all", "right"], stretch=1.1) == []
    assert find_lapses(["r"], ["all", "right"], stretch=1.6) == [Lapse.ADDED]
    assert find_lapses(["two", "bags"], ["two", "bags", "again"], stretch=1.0) == [Lapse.ADDED]


def test_an_alignment_holds_every_word_once_and_in_order() -> None:
    """Aligning loses no word of either side, and stretches lie between the words that agree."""
    said, heard = (
        ["we", "packed", "two", "bags", "and", "the", "blanket"],
        ["we", "packed", "bags", "and", "the", "old", "blanket"],
    )
    pairs = align_words(said, heard)
    assert [left for left, _ in pairs if left is not None] == said
    assert [right for _, right in pairs if right is not None] == heard
    assert list(differing_stretches(said, heard)) == [(["two"], []), ([], ["old"])]
