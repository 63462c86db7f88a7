"""The benchmark: what it takes, and how it reckons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbrelay.commands.bench import MAX_USERS, Plan, Result, describe_machine, print_table, write_figures
from timbrelay.errors import OpsError, UsageFault
from timbrelay.events import RelayError
from timbrelay.load import Tally, percentile
from timbrelay.stack.local import Options


def test_users_are_numbers_with_commas() -> None:
    """Each number of users is a run of its own."""
    assert Plan.parse("1,10", 20.0, None, Options()).users == (1, 10)


@pytest.mark.parametrize("users", ["", "one", "1,", "0", "-1", str(MAX_USERS + 1)])
def test_other_users_are_refused(users: str) -> None:
    """Anything but numbers within the bound is wrong usage."""
    with pytest.raises(UsageFault, match="--users takes numbers"):
        Plan.parse(users, 20.0, None, Options())


def test_a_percentile_is_one_of_the_values() -> None:
    """The nearest-rank percentile: the least value that the share does not exceed."""
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert [percentile(values, share) for share in (0.0, 0.2, 0.5, 0.95, 1.0)] == [1.0, 1.0, 3.0, 5.0, 5.0]
    assert percentile([], 0.5) == 0.0


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0.01, 1))
def test_a_percentile_covers_its_share(values: list[float], share: float) -> None:
    """At least the share of the values is not above the percentile."""
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_figures_are_milliseconds_and_factors() -> None:
    """The result holds what was measured, in the units of its names."""
    tally = Tally([0.1, 0.2, 0.3], underruns=2, silence_s=0.05, audio_s=10.0, synthesis_s=2.5)
    tally.count_error(RelayError("overloaded", "come back later"))
    tally.count_error(TimeoutError())
    result = Result.of(10, 20.0, tally)
    assert (result.utterances, result.first_audio_p50_ms, result.first_audio_p95_ms) == (3, 200.0, 300.0)
    assert (result.underruns, result.underrun_ms, result.real_time_factor) == (2, 50.0, 0.25)
    assert result.errors == {"overloaded": 1, "TimeoutError": 1}


def test_figures_name_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both the table and the JSON say on which machine they were measured."""
    results = [Result.of(1, 20.0, Tally())]
    print_table(describe_machine(), results)
    assert "cores" in capsys.readouterr().out.splitlines()[0]
    write_figures(tmp_path / "figures.json", describe_machine(), results)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["machine"] == describe_machine()
    assert figures["runs"][0]["users"] == 1
    with pytest.raises(OpsError, match="choose another file with --json"):
        write_figures(tmp_path / "none" / "figures.json", "", results)
