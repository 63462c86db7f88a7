"""worker.training.judging.gate: which figures let a bundle into service."""

from __future__ import annotations

from typing import Any

import pytest

from worker.training.judging.gate import RULES, Line, find_tolerance, tabulate, weigh

GOOD = {
    "likeness": 0.78,
    "equal_error_rate": 0.04,
    "word_error_rate": 0.02,
    "distillmos": 3.6,
    "dnsmos": 2.9,
    "share_lost_or_repeated": 0.0,
    "share_of_extremes_lost_or_repeated": 0.0,
    "real_time_factor": 0.05,
    "vocoder_16k_cost": 0.4,
    "word_error_rate_16k": 0.03,
    "likeness_16k": 0.77,
    "distillmos_16k": 3.3,
}
INTERVALS = {"likeness": [0.77, 0.79], "word_error_rate": [0.01, 0.03], "distillmos": [3.5, 3.7], "dnsmos": [2.8, 3.0]}
SENTENCES = [{"system": "vocoder", "words": 10}] * 60


def _evaluation(**changed: float | None) -> dict[str, Any]:
    figures = {**GOOD, **changed}
    kept = {name: value for name, value in figures.items() if value is not None}
    return {"figures": kept, "intervals": INTERVALS, "sentences": SENTENCES}


def _faults(lines: list[Line]) -> dict[str, str]:
    return {line.rule.figure: line.fault for line in lines if line.fault}


def test_a_bundle_passes_beside_itself() -> None:
    """What is as good as the bundle in service, and as the absolute limits ask for, passes."""
    assert _faults(weigh(_evaluation(), _evaluation())) == {}


def test_the_first_bundle_has_only_the_limits_to_keep() -> None:
    """Without a bundle in service nothing is compared."""
    assert _faults(weigh(_evaluation(likeness=0.71), None)) == {}
    assert _faults(weigh(_evaluation(likeness=0.69), None)).keys() == {"likeness"}


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("likeness", 0.699),
        ("equal_error_rate", 0.121),
        ("word_error_rate", 0.061),
        ("distillmos", 3.19),
        ("share_lost_or_repeated", 0.021),
        ("share_of_extremes_lost_or_repeated", 0.083),
        ("real_time_factor", 0.121),
        ("vocoder_16k_cost", 0.51),
    ],
)
def test_an_absolute_limit_is_kept_whatever_is_in_service(figure: str, value: float) -> None:
    """A bundle that breaks a limit is refused even where the one in service is worse still."""
    worse = _evaluation(**dict.fromkeys(GOOD, value))
    assert "must be at" in _faults(weigh(_evaluation(**{figure: value}), worse))[figure]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.figure)
def test_a_figure_that_is_lacking_refuses(rule: Any) -> None:
    """No figure, no entry; a figure that is no number is none."""
    assert _faults(weigh(_evaluation(**{rule.figure: None}), _evaluation())) == {rule.figure: "is missing"}
    assert _faults(weigh(_evaluation(**{rule.figure: float("nan")}), _evaluation())) == {rule.figure: "is missing"}


def test_a_figure_may_be_worse_by_half_its_interval_and_no_more() -> None:
    """The tolerance is half the width of the interval of the bundle in service, in either direction of better."""
    service = _evaluation()
    assert _faults(weigh(_evaluation(likeness=0.7701, word_error_rate=0.0299), service)) == {}
    assert _faults(weigh(_evaluation(likeness=0.7699, word_error_rate=0.0301), service)).keys() == {
        "likeness",
        "word_error_rate",
    }
    assert _faults(weigh(_evaluation(likeness=0.9, word_error_rate=0.0), service)) == {}


def test_a_rate_of_zero_tolerates_three_in_all_trials() -> None:
    """Zero in n trials does not exclude a rate of 3/n: trials are words for the word error rate, else sentences."""
    service = {**_evaluation(), "intervals": {"share_lost_or_repeated": [0.0, 0.0], "word_error_rate": [0.0, 0.0]}}
    assert find_tolerance("share_lost_or_repeated", service) == pytest.approx(3 / 60)
    assert find_tolerance("word_error_rate", service) == pytest.approx(3 / 600)


def test_speed_is_not_compared_between_machines() -> None:
    """Being slower than the bundle in service is no fault within the limit: it was measured at another time."""
    assert _faults(weigh(_evaluation(real_time_factor=0.11), _evaluation())) == {}


def test_the_table_says_which_figure_and_by_how_much() -> None:
    """Every figure has a row with both values, tolerance, limit and verdict."""
    rows = tabulate(weigh(_evaluation(distillmos=3.4), _evaluation()))
    assert len(rows) == len(RULES) + 1
    (row,) = (row for row in rows if row[0] == "DistillMOS")
    assert row == ("DistillMOS", "3.400", "3.600", "0.100", "3.200", "is worse by 0.200")


def test_beyond_its_aim_a_figure_may_fall_behind() -> None:
    """A word error rate under two percent is no reason to refuse, though the bundle in service has less; short of the
    aim it is."""
    before = _evaluation(word_error_rate_16k=0.005)
    assert _faults(weigh(_evaluation(word_error_rate_16k=0.019), before)) == {}
    assert _faults(weigh(_evaluation(word_error_rate_16k=0.03), before)).keys() == {"word_error_rate_16k"}
    assert _faults(weigh(_evaluation(likeness=0.81), _evaluation(likeness=0.9))) == {}
