"""relay.webrtc.bitrate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.webrtc.bitrate import CEILING, FLOOR, MOST_LOSS_PERCENT, USUAL_LOSS_PERCENT, Quality, adapt


def test_much_loss_takes_bits_away_and_adds_copies() -> None:
    """Above 10 % the rate falls to 70 % at each report, down to the floor, and what is lost is prepared for."""
    quality = Quality()
    rates = []
    for _ in range(4):
        quality = adapt(quality, 0.25)
        rates.append(quality.bitrate)
    assert rates == [22_400, FLOOR, FLOOR, FLOOR]
    assert quality.loss_percent == 25


def test_a_network_that_has_recovered_gets_all_back() -> None:
    """Below 2 % the rate rises by 5 % a report up to the ceiling, and the copies become fewer."""
    quality = Quality(FLOOR, MOST_LOSS_PERCENT)
    for _ in range(40):
        after = adapt(quality, 0.0)
        assert quality.bitrate <= after.bitrate <= quality.bitrate * 1.05 or after.bitrate == CEILING
        quality = after
    assert quality == Quality(CEILING, USUAL_LOSS_PERCENT)


def test_some_loss_changes_only_the_copies() -> None:
    """Between 2 % and 10 % the rate stays as it is."""
    assert adapt(Quality(24_000, 5), 0.08) == Quality(24_000, 8)
    assert adapt(Quality(24_000, 12), 0.05) == Quality(24_000, 12)


@given(st.lists(st.floats(0, 1), max_size=50))
def test_the_quality_stays_within_its_bounds(reports: list[float]) -> None:
    """Whatever is reported."""
    quality = Quality()
    for lost in reports:
        quality = adapt(quality, lost)
        assert FLOOR <= quality.bitrate <= CEILING
        assert USUAL_LOSS_PERCENT <= quality.loss_percent <= MOST_LOSS_PERCENT
