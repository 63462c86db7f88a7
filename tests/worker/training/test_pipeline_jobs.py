"""worker.training.pipeline: its processes, how they end, and what is said when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worker.errors import TrainingError
from worker.training.pipeline.curves import last_row, measure_training
from worker.training.pipeline.engine import check_room, open_folder
from worker.training.pipeline.jobs import Job, Place, explain, run_jobs

DEADLINE_S = 30.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A stage `render` in a folder whose modules can be run as jobs."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    lock = os.open(tmp_path / "run.lock", os.O_RDWR | os.O_CREAT)
    return Place("render", tmp_path / "render.log", lock, lambda *_: None)


def make_module(folder: Path, name: str, program: str) -> Job:
    (folder / f"{name}.py").write_text(program)
    return Job(name, name, ())


def test_jobs_run_at_the_same_time_to_their_ends(tmp_path: Path, place: Place) -> None:
    """Two jobs that wait for each other both end, and their words are in the log."""
    program = (
        "import pathlib, time\nroot = pathlib.Path({root!r})\n(root / '{mine}').touch()\n"
        "while not (root / '{other}').exists(): time.sleep(0.01)\nprint('{mine} done')\n"
    )
    jobs = [
        make_module(tmp_path, mine, program.format(root=str(tmp_path), mine=f"{mine}.up", other=f"{other}.up"))
        for mine, other in (("one", "two"), ("two", "one"))
    ]
    assert run_jobs(jobs, place, DEADLINE_S)
    assert place.log.read_text().count("done") == 2


def test_a_job_that_fails_ends_the_others_and_is_named(tmp_path: Path, place: Place) -> None:
    """The sentence holds the stage, the job, the last line it said and the log; the other job is ended."""
    bad = make_module(tmp_path, "bad", "raise OSError(28, 'No space left on device')\n")
    endless = make_module(tmp_path, "endless", "import time\nwhile True: time.sleep(1)\n")
    with pytest.raises(TrainingError) as raised:
        run_jobs([endless, bad], place, DEADLINE_S)
    said = str(raised.value)
    assert "The stage `render` stopped in `bad`: [Errno 28] No space left on device. What is done is kept" in said
    assert str(place.log) in said


def test_at_its_deadline_a_stage_ends_with_what_it_has(tmp_path: Path, place: Place) -> None:
    """A stage that makes data is ended, not failed, when its time is long over."""
    endless = make_module(tmp_path, "endless", "import time\nwhile True: time.sleep(1)\n")
    assert not run_jobs([endless], place, 0.0)


@pytest.mark.parametrize(
    ("code", "tail", "said"),
    [
        (1, "Traceback ...\nworker.errors.TrainingError: x holds no sound: take it out\n", "x holds no sound: take"),
        (1, "ArithmeticError: the loss is not finite at step 7\n\n", "the loss is not finite at step 7"),
        (3, "", "exit code 3 and said nothing"),
        (-9, "anything", "SIGKILL; the machine may have run out of memory"),
    ],
)
def test_the_reason_is_the_last_line_or_the_signal(code: int, tail: str, said: str) -> None:
    """Whoever reads it needs no traceback."""
    assert said in explain(code, tail)
    assert "Error:" not in explain(code, tail)


def test_a_loss_that_is_not_finite_stops_the_stage(tmp_path: Path, place: Place) -> None:
    """The stage, the step and the curve are named."""
    curve = tmp_path / "losses.csv"
    curve.write_text("25,3,1.5,0.5\n50,6,nan,0.5\n")
    endless = make_module(tmp_path, "train", "import time\nwhile True: time.sleep(1)\n")
    job = Job("train", endless.module, (), 1, measure_training(curve, 1.0, 1))
    with pytest.raises(TrainingError, match=r"`render` was stopped in `train`: the loss is not finite at step 50"):
        run_jobs([job], place, DEADLINE_S)


def test_a_half_written_line_of_a_curve_is_not_read(tmp_path: Path) -> None:
    """Only whole lines count, and a curve that has not begun has none."""
    curve = tmp_path / "losses.csv"
    assert last_row(curve) == []
    curve.write_text("25,3,1.5\n50,6")
    assert last_row(curve) == [25.0, 3.0, 1.5]


def test_a_disk_that_is_too_full_is_refused_before_the_stage(tmp_path: Path) -> None:
    """The stage, what it needs and what is free are told."""
    with pytest.raises(TrainingError, match=r"The stage `render` needs 1000000000000 MB and \d+ MB are free"):
        check_room("render", tmp_path, 10**12)


def test_two_runs_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is refused while the first is at work, and may begin when it has ended."""
    monkeypatch.setattr("worker.training.pipeline.engine._LOCK_WAIT_S", 0.0)
    with open_folder(tmp_path), pytest.raises(TrainingError, match="another run is at work"), open_folder(tmp_path):
        pass
    with open_folder(tmp_path):
        pass


def test_a_process_ends_when_its_run_is_killed(tmp_path: Path) -> None:
    """After `kill -9` of the run no process of it goes on."""
    (tmp_path / "endless.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid.part').write_text(str(os.getpid()))\n"
        "os.rename('pid.part', 'pid')\nwhile True: time.sleep(1)\n"
    )
    program = (
        "import os, pathlib\nfrom worker.training.pipeline.jobs import Job, Place, run_jobs\n"
        "lock = os.open('run.lock', os.O_RDWR | os.O_CREAT)\n"
        "run_jobs([Job('endless', 'endless', ())], Place('render', pathlib.Path('log'), lock, print), 60)\n"
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), root))}
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment) as run:
        wait_for((tmp_path / "pid").exists)
        run.send_signal(signal.SIGKILL)
    child = int((tmp_path / "pid").read_text())
    wait_for(lambda: not _is_alive(child))


def _is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
