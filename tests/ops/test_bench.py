"""`timbrelay bench`: what it takes, how it reckons, and a short real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbrelay.benchmark.baseline import Baseline, measure_baseline
from timbrelay.benchmark.doors.measuring import DOORS, SOCKETS
from timbrelay.benchmark.figures import Report, Result, Spread, Surroundings, held_users
from timbrelay.benchmark.machine import describe_machine, find_commit
from timbrelay.benchmark.profile import find_profiler, profiling
from timbrelay.benchmark.report import render_page, render_table, write_json, write_page
from timbrelay.benchmark.resources import Share
from timbrelay.benchmark.stages import Stage
from timbrelay.benchmark.tally import Tally, percentile
from timbrelay.commands.bench import MAX_USERS, Plan
from timbrelay.enrolment import default_reference
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault
from timbrelay.events import RelayError
from timbrelay.stack.local import Options

ROOT = Path(__file__).resolve().parents[2]


def tally(**changed: Any) -> Tally:
    """A run in which everything was in time."""
    given = {"first_audio_s": [0.1, 0.02, 0.03], "turns": 3, "audio_s": 10.0, "sentences_s": 2.5, "spoken_s": 10.0}
    return Tally(**{**given, **changed})


def result(users: int = 1, seen: Surroundings | None = None, **changed: Any) -> Result:
    return Result.of(users, 20.0, tally(**changed), seen or Surroundings())


def report(*results: Result, baseline: Baseline | None = None) -> Report:
    return Report("a machine, 2 cores", "2026-01-02", "abc1234", 0, results, baseline)


def test_users_are_numbers_with_commas() -> None:
    """Each number of users is a run of its own."""
    assert Plan.parse_users("1,10") == (1, 10)


@pytest.mark.parametrize("users", ["", "one", "1,", "0", "-1", str(MAX_USERS + 1)])
def test_other_users_are_refused(users: str) -> None:
    """Anything but numbers within the bound is wrong usage."""
    with pytest.raises(UsageFault, match="--users takes numbers"):
        Plan.parse_users(users)


def test_a_plan_says_how_to_get_the_same_again() -> None:
    """What the page names is what was run."""
    plan = Plan((1, 10), 30.0, None, Options(), seed=7, beyond=True)
    assert plan.command == "./dev bench --users 1,10 --seconds 30 --seed 7 --beyond"


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
    worker = {"worker": Share(0.5, 400.0, 390.0), "worker-2": Share(0.1, 400.0, 390.0), "relay": Share(0.9, 1.0, 1.0)}
    made = result(10, Surroundings(worker), underruns=2, silence_s=0.05)
    assert made.first_audio == Spread(30.0, 100.0, 100.0, 3)
    assert (made.underruns, made.underrun_ms, made.real_time_factor) == (2, 50.0, 0.25)
    assert made.worker_cpu_per_audio == pytest.approx(0.6 * 20.0 / 10.0)


def test_the_first_criterion_that_broke_is_named() -> None:
    """Refusals, errors, silence, underruns, lateness, in this order; none when all were held."""
    failed = tally()
    failed.count_error(RelayError("timeout", "come back later"))
    failed.count_error(TimeoutError())
    broken = [
        (result(refused=3, refused_users={1, 2}, underruns=1), "3 contexts of 2 users were refused"),
        (Result.of(1, 20.0, failed, Surroundings()), "errors: TimeoutError 1, timeout 1"),
        (result(turns=0), "nobody heard anything"),
        (result(underruns=2, silence_s=0.05, first_audio_s=[0.3]), "2 underruns, 50 ms of silence"),
        (result(first_audio_s=[0.2]), "first audio p95 200 ms, promised are 200 ms"),
        (result(), None),
    ]
    for made, criterion in broken:
        assert made.broken == criterion


def test_what_was_held_ends_where_it_first_broke() -> None:
    """A number beyond one that was not held is luck."""
    late = result(10, first_audio_s=[0.5])
    assert held_users([result(1), late, result(24)]) == 1
    assert held_users([result(1), result(10), result(24)]) == 24
    assert held_users([late]) == 0


def test_a_load_generator_that_had_no_room_is_told() -> None:
    """A figure that measures the measuring says so."""
    busy = Surroundings({"load generator": Share(0.95, 80.0, 80.0)})
    assert "saturated" in (result(seen=busy).doubt or "")
    assert "50 ms late" in (result(lags_s=[0.05]).doubt or "")
    assert result(lags_s=[0.001]).doubt is None


def test_figures_name_the_machine_and_the_page_is_made_of_the_json(tmp_path: Path) -> None:
    """Table and page show the same: the runs, the processes, the stages, the baseline, the targets."""
    seen = Surroundings(
        {"worker": Share(0.5, 400.0, 390.0), "load generator": Share(0.1, 80.0, 80.0)},
        1.2,
        [Stage("worker", "decode", 10, 1.5, 2.0, 0.02)],
        24.0,
    )
    made = report(
        result(1, seen), result(10, seen, refused=1, refused_users={4}), baseline=Baseline(0.08, 0.02, 10, 40)
    )
    figures = write_json(tmp_path / "figures.json", made)
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    write_page(tmp_path / "benchmarks.md", figures, "./dev bench")
    page = (tmp_path / "benchmarks.md").read_text()
    assert page.rstrip().split("\n") == [line.rstrip() for line in render_page(figures, "./dev bench")]
    for text in ("\n".join(render_table(figures)), page):
        for expected in (
            "a machine, 2 cores",
            "10 users: not held: 1 contexts of 1 users were refused; to those who were taken the promise was kept",
            "0.50, 400",
            "1.50, 0.0200",
            "4.0x",
            "first audio, 10 users, p95",
        ):
            assert expected in text, expected
    with pytest.raises(OpsError, match="choose another file with --json"):
        write_json(tmp_path / "figures.json" / "below", made)


def test_the_machine_and_the_commit_are_named() -> None:
    """Figures without them say nothing; outside of a checkout the commit is unknown."""
    assert "cores" in describe_machine()
    assert find_commit(Path("/")) == "unknown"


def test_the_baseline_speaks_alone_and_in_batches() -> None:
    """Both give the cost of a second of audio on one core."""
    environment = Environment.read({})
    sentences = ["This one is short.", "And this one is a little longer."]
    made = measure_baseline(ROOT / "bundles" / "base", default_reference(environment), sentences, budget_s=0.1)
    assert made.sequential > 0
    assert made.batched > 0
    assert made.gain == round(made.sequential / made.batched, 2)


def test_without_py_spy_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Asked for a profile, the command says what is missing before it starts anything."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageFault, match="pip install py-spy"):
        find_profiler()


async def test_a_profiler_that_may_not_look_is_one_sentence(tmp_path: Path) -> None:
    """What it says itself is passed on."""
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions'\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(OpsError, match="Permission Denied"):
        async with profiling(fake, {"relay": os.getpid()}, tmp_path, "1-users"):
            pass


@pytest.mark.timeout(300)
def test_a_short_run_measures_the_stack_and_saves_what_it_found(
    tmp_path: Path, clean_variables: dict[str, str]
) -> None:
    """Two numbers of users against a stack of its own: agents talked, and every part was looked at."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "timbrelay",
            "bench",
            "--users",
            "1,3",
            "--seconds",
            "2",
            "--beyond",
            "--port",
            "0",
            "--doors",
            "1",
        ],
        env={**clean_variables, "TIMBRELAY_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "Targets" in done.stdout
    figures = json.loads((tmp_path / "home" / "bench.json").read_text())
    assert [run["users"] for run in figures["results"]] == [1, 3]
    for run in figures["results"]:
        assert run["turns"] or run["refused"]
        assert {"relay", "worker", "valkey", "postgres", "load generator"} <= set(run["processes"])
        assert {("relay", "text"), ("relay", "send")} <= {(stage["room"], stage["name"]) for stage in run["stages"]}
    assert figures["baseline"]["sequential"] > 0
    assert len(figures["doors"]) == len(DOORS)
    assert all(door["first_audio_p50_ms"] > 0 for door in figures["doors"])
    assert figures["idle_sockets"]["sockets"] == SOCKETS
