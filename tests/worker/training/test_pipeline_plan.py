"""worker.training.pipeline: how the time is divided, what a stage may become, and what a run remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import TrainingError
from worker.training.pipeline.budget import MOST_SPEECH_S, PACE, speech_hours, split_seconds
from worker.training.pipeline.engine import Course, Step
from worker.training.pipeline.stages import ADAPTING, MOVES, TRAINING, Cost, Stage, Status, check_move
from worker.training.pipeline.state import FILE, RunState

OPTIONS = {"hours": 1.0, "seed": 1, "jobs": 2}


@given(st.floats(0.001, 1000), st.integers(1, 64), st.sets(st.sampled_from(list(TRAINING)), min_size=1))
def test_no_time_is_lost_or_invented(hours: float, jobs: int, stages: set[Stage]) -> None:
    """Whatever stages run, their seconds are the run's, as long as one of them can always use more."""
    costs = {stage: TRAINING[stage] for stage in stages | {Stage.SYNTHESIZER}}
    seconds = split_seconds(hours * 3600, costs, jobs)
    assert seconds.keys() == costs.keys()
    assert sum(seconds.values()) == pytest.approx(hours * 3600)
    assert all(0 <= value <= costs[stage].most / jobs + 1e-6 for stage, value in seconds.items())


def test_what_one_stage_cannot_use_goes_to_the_others() -> None:
    """A stage with a limit gets no more than that; the rest is shared as before."""
    costs = {Stage.RENDER: Cost(0.5, most=10), Stage.VOCODER: Cost(0.1), Stage.SYNTHESIZER: Cost(0.4)}
    assert split_seconds(100, costs, 1) == {
        Stage.RENDER: 10,
        Stage.VOCODER: pytest.approx(18),
        Stage.SYNTHESIZER: pytest.approx(72),
    }


@pytest.mark.parametrize("stage", sorted(PACE))
def test_speech_grows_with_time_up_to_what_is_of_use(stage: Stage) -> None:
    """More time or more cores make more speech, never less than the networks need and never more than is of use."""
    amounts = [speech_hours(stage, seconds, jobs) for seconds, jobs in ((0, 1), (3600, 1), (3600, 2), (10**9, 8))]
    assert amounts == sorted(amounts)
    assert amounts[0] * 3600 > 60
    assert amounts[-1] * 3600 == pytest.approx(MOST_SPEECH_S[stage])


def test_every_status_has_its_moves_and_the_last_ones_have_none() -> None:
    """A stage that is done or skipped stays that; a killed or failed one can be taken up again."""
    assert MOVES.keys() == set(Status)
    assert MOVES[Status.DONE] == MOVES[Status.SKIPPED] == frozenset()
    for status in (Status.WAITING, Status.RUNNING, Status.FAILED):
        check_move("render", status, Status.RUNNING)
    with pytest.raises(ValueError, match="render cannot go from done to running"):
        check_move("render", Status.DONE, Status.RUNNING)


def test_the_tables_hold_the_whole_time() -> None:
    """The shares of a run sum to one, and the stages of an adaptation are stages of the training."""
    for table in (TRAINING, ADAPTING):
        assert sum(cost.share for cost in table.values()) == pytest.approx(1.0, abs=0.02)
    assert ADAPTING.keys() <= TRAINING.keys()


def test_what_was_allotted_stays_and_skipped_time_goes_to_later_stages(tmp_path: Path) -> None:
    """A stage's time is fixed when it begins, so a resumed run does what the first one would have done."""
    costs = {Stage.RENDER: Cost(0.2), Stage.KOKORO: Cost(0.4), Stage.SYNTHESIZER: Cost(0.4)}
    course = Course(costs, {stage: Step(lambda _: iter(())) for stage in costs}, 1.0, 2)
    state = RunState.open(tmp_path, OPTIONS, costs)
    assert course.allot(state, Stage.RENDER) == pytest.approx(720)
    state.move(Stage.RENDER, Status.RUNNING)
    state.move(Stage.RENDER, Status.DONE)
    state.move(Stage.KOKORO, Status.SKIPPED, "no styles")
    assert course.allot(state, Stage.SYNTHESIZER) == pytest.approx(2880)
    again = RunState.open(tmp_path, OPTIONS, costs)
    assert course.allot(again, Stage.RENDER) == pytest.approx(720)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    """What is stored is read again, down to the notes; a stage that ran is still running."""
    state = RunState.open(tmp_path, OPTIONS, ["render", "features"])
    state.move("render", Status.SKIPPED, "no need")
    state.move("features", Status.RUNNING)
    again = RunState.open(tmp_path, OPTIONS, ["render", "features"])
    assert again == state
    assert again.pending() == ["features"]
    assert RunState.stored_jobs(tmp_path) == 2


def test_a_run_with_other_options_is_refused_by_name(tmp_path: Path) -> None:
    """The options that differ are told with both values, and the run that is there is left alone."""
    RunState.open(tmp_path, OPTIONS, ["render"]).save()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(TrainingError, match=r"--hours is 1.0 there and 2.0 here.*another --out"):
        RunState.open(tmp_path, OPTIONS | {"hours": 2.0}, ["render"])
    assert (tmp_path / FILE).read_bytes() == before


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    """Nothing is written into a folder that holds something else."""
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(TrainingError, match=r"holds other files and no run\.json"):
        RunState.open(tmp_path, OPTIONS, ["render"])


@pytest.mark.parametrize("content", ["", "[]", '{"format": 7}', '{"format": 1, "stages": {"render": {}}}'])
def test_a_damaged_state_is_a_sentence(tmp_path: Path, content: str) -> None:
    """A state that cannot be read is named, not guessed at."""
    (tmp_path / FILE).write_text(content)
    with pytest.raises(TrainingError, match=r"run\.json cannot be read .*choose another --out"):
        RunState.open(tmp_path, OPTIONS, ["render"])


def test_a_full_disk_keeps_the_state_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the new state cannot be written, the sentence says so and the old one is whole."""
    state = RunState.open(tmp_path, OPTIONS, ["render"])
    state.save()
    before = json.loads((tmp_path / FILE).read_text())

    def fill(self: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", fill)
    with pytest.raises(TrainingError, match=r"run\.json cannot be written \(No space left on device\): make room"):
        state.move("render", Status.RUNNING)
    assert json.loads((tmp_path / FILE).read_text()) == before
