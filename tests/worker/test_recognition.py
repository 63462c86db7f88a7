"""Word error rate: how what was heard is compared with what was asked for."""

from __future__ import annotations

import pytest

from worker.training.prompts import cut_text
from worker.training.recognition import count_errors, normalize_words, spell_number


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("My flight leaves at nine thirty.", "my flight leaves at 9:30"),
        ("The total comes to 42 dollars and 50 cents.", "The total comes to $42.50."),
        ("March fourteenth, nineteen eighty-seven", "March 14th 1987"),
        ("1,250 users, twenty percent", "1250 users 20%"),
        ("Okay, Mister Bell", "OK Mr. Bell"),
        ("It’s the twentieth", "its the 20th"),
    ],
)
def test_two_spellings_of_one_reading_agree(said: str, heard: str) -> None:
    """Digits and words, marks and letter case make no error."""
    assert normalize_words(said) == normalize_words(heard)


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (13, "thirteen"), (40, "forty"), (365, "three hundred sixty five"), (20001, "twenty thousand one")],
)
def test_numbers_are_spelled(number: int, words: str) -> None:
    """A whole number is spelled in English words."""
    assert spell_number(number) == words


@pytest.mark.parametrize(
    ("heard", "errors"), [("a b c", 0), ("a c", 1), ("a x c", 1), ("a b b c", 1), ("", 3), ("c b a", 2)]
)
def test_errors_are_the_fewest_changes(heard: str, errors: int) -> None:
    """Substitutions, insertions and deletions count one each, in the cheapest way to explain what was heard."""
    assert count_errors(["a", "b", "c"], heard.split()) == errors


def test_prompts_are_pieces_of_fewer_than_ten_words() -> None:
    """A long clause is cut into near-equal parts below ten words, and no word is lost."""
    text = "Well, one two three four five six seven eight nine ten eleven; done."
    pieces = cut_text(text)
    assert all(1 <= len(piece.split()) < 10 for piece in pieces)
    assert " ".join(pieces) == text
