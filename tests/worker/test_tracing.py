"""worker.text.tracing: which written word a spoken one comes from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.text.tracing import trace_words

WORDS = st.lists(st.text("ab1.-", min_size=1, max_size=5), max_size=12)


@pytest.mark.parametrize(
    ("written", "spoken", "sources"),
    [
        ("as it is", "as it is", [0, 1, 2]),
        ("at 9:30 PM sharp", "at nine thirty P.M. sharp", [0, 1, 1, 2, 3]),
        ("$2.5 million more", "2.5 million dollars more", [0, 1, 1, 2]),
        ("June 5, 2024", "June fifth, 2024", [0, 1, 2]),
        ("5 - 10 people", "5 to 10 people", [0, 1, 2, 3]),
        ("(555) 123-4567", "5 5 5, 1 2 3, 4 5 6 7", [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]),
        ("hello , there !", "hello, there!", [0, 2]),
        ("e.g. this", "for example this", [0, 0, 1]),
        ("Rs. 500 now", "500 rupees now", [1, 1, 2]),
        ("said", "he said", [0, 0]),
        ("gone away", "", []),
    ],
)
def test_spoken_words_go_to_what_was_written(written: str, spoken: str, sources: list[int]) -> None:
    """Words that were kept hold the others in their places; of these, kept characters decide, and gaps are filled."""
    assert trace_words(written.split(), spoken.split()) == sources


@settings(max_examples=300, deadline=None)
@given(WORDS.filter(bool), WORDS)
def test_every_spoken_word_has_one_source_in_order(written: list[str], spoken: list[str]) -> None:
    """Whatever the rules made of a text: nobody is left out, and nobody turns back."""
    sources = trace_words(written, spoken)
    assert len(sources) == len(spoken)
    assert sources == sorted(sources)
    assert all(0 <= source < len(written) for source in sources)


def test_a_long_stretch_is_shared_out() -> None:
    """What is too long to be compared by its characters is spread evenly."""
    assert trace_words(["x" * 200] * 2, ["y" * 200] * 4) == [0, 0, 1, 1]
