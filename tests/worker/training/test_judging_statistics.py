"""worker.training.judging.statistics: equal error rates and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.training.judging.statistics import bootstrap, equal_error_rate

SCORES = st.lists(st.integers(-100, 100).map(lambda n: n / 100), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("genuine", "impostor", "rate"),
    [
        ([0.8, 0.9], [0.1, 0.2, 0.3], 0.0),
        ([0.1, 0.2], [0.8, 0.9], 1.0),
        ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4], 0.5),
        ([0.5] * 4, [0.5] * 9, 0.5),
        ([0.2, 0.6, 0.7, 0.8], [0.1, 0.15, 0.3, 0.4], 0.25),
        ([0.25, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0], [0.3, 0.1], 0.1),
    ],
)
def test_the_equal_error_rate_of_known_scores(genuine: list[float], impostor: list[float], rate: float) -> None:
    """Separable scores give 0, swapped ones 1, identical ones one half, overlapping ones the point between."""
    assert equal_error_rate(genuine, impostor) == pytest.approx(rate)


@settings(deadline=None)
@given(SCORES, SCORES)
def test_an_equal_error_rate_is_a_rate_and_mirrors(genuine: list[float], impostor: list[float]) -> None:
    """It lies between 0 and 1, and telling the two sides apart the other way round errs on the rest."""
    rate = equal_error_rate(genuine, impostor)
    assert 0 <= rate <= 1
    assert rate + equal_error_rate(impostor, genuine) == pytest.approx(1.0, abs=1e-9)


def test_scores_on_one_side_alone_are_refused() -> None:
    """Without impostors there is no error rate."""
    with pytest.raises(ValueError, match="impostor"):
        equal_error_rate([0.5], [])


def _mean(values: object) -> float:
    return float(np.mean(np.asarray(values)))


def test_the_same_sentences_give_the_same_interval() -> None:
    """An interval is a function of the figures: it is the same in every run, and holds the mean."""
    rng = np.random.default_rng(5)
    groups = [list(rng.normal(0.7, 0.1, 25)), list(rng.normal(0.8, 0.1, 25))]
    first, second = bootstrap(groups, _mean, 200), bootstrap(groups, _mean, 200)
    assert first == second
    assert first is not None
    assert first[0] < _mean(groups) < first[1]
    assert 0.01 < first[1] - first[0] < 0.1


def test_more_sentences_make_an_interval_narrower() -> None:
    """Sixteen times as many sentences make it about four times as narrow."""
    rng = np.random.default_rng(6)
    few, many = (bootstrap([list(rng.normal(0, 1, size))], _mean, 300) for size in (20, 320))
    assert few is not None
    assert many is not None
    assert 2.5 < (few[1] - few[0]) / (many[1] - many[0]) < 6


def test_sentences_are_redrawn_within_a_speaker() -> None:
    """Speakers that differ do not widen the interval: it speaks for these people."""
    assert bootstrap([[0.0] * 8, [1.0] * 8], _mean, 100) == (0.5, 0.5)


def test_a_figure_that_is_not_there_has_no_interval() -> None:
    """When a figure cannot be computed there is nothing to be sure of."""
    assert bootstrap([[1, 2]], lambda values: None, 10) is None
