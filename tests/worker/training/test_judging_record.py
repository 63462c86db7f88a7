"""worker.training.judging.record and notebook: what is kept of an evaluation."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import numpy as np
import pytest

from worker.training.judging.hearing import Judgement, Kind, Task
from worker.training.judging.notebook import Notebook
from worker.training.judging.record import record, write_text
from worker.training.judging.speakers import Spoken

WAV = np.linspace(-0.5, 0.5, 2400, dtype=np.float32)


def _task(text: str, kept: bool = False) -> Task:
    return Task("vocoder", "a", Kind.PLAIN, text, "mark", lambda: Spoken(WAV), kept=kept)


def _judgement(text: str) -> Judgement:
    return Judgement(
        "vocoder", "a", "plain", text, text, 2, 0, [], 0.8, [0.5], None, None, 1.0, 0.9, 0.9, {"text": 0.1}
    )


def test_what_was_judged_is_known_to_the_next_run(tmp_path: Path) -> None:
    """Judgements and sounds come back as they were; another ear knows nothing of them."""
    Notebook(tmp_path, "ear").write(_task("one", kept=True), _judgement("one"), WAV)
    again = Notebook(tmp_path, "ear")
    assert again.find(_task("one", kept=True)) == _judgement("one")
    assert np.abs(again.sound(_task("one")) - WAV).max() < 1e-4
    assert again.find(_task("two")) is None
    assert Notebook(tmp_path, "other ear").find(_task("one")) is None


def test_half_a_line_of_a_killed_run_costs_that_line_alone(tmp_path: Path) -> None:
    """What a kill cut off is judged again, and what is written after it can be read."""
    Notebook(tmp_path, "ear").write(_task("one"), _judgement("one"), WAV)
    with (tmp_path / "judged.jsonl").open("a") as file:
        file.write('{"key": "ab", "judg')
    Notebook(tmp_path, "ear").write(_task("two"), _judgement("two"), WAV)
    again = Notebook(tmp_path, "ear")
    assert again.find(_task("one")) == _judgement("one")
    assert again.find(_task("two")) == _judgement("two")


def test_a_sound_that_is_gone_is_made_again(tmp_path: Path) -> None:
    """A judgement whose sound is needed and missing does not count."""
    notebook = Notebook(tmp_path, "ear")
    notebook.write(_task("one"), _judgement("one"), WAV)
    assert notebook.find(_task("one")) is not None
    assert notebook.find(_task("one", kept=True)) is None


def test_a_disk_that_fills_leaves_the_earlier_report(tmp_path: Path) -> None:
    """A report is written beside its place first: when that fails, the one before is whole."""
    path, limits = tmp_path / "evaluation.json", resource.getrlimit(resource.RLIMIT_FSIZE)
    write_text(path, "before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_text(path, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "before"


def test_a_recorded_report_lies_beside_the_bundle_with_its_figures_in_the_manifest(tmp_path: Path) -> None:
    """The manifest keeps its other figures and takes those of the report as `speech`."""
    out, bundle = tmp_path / "out", tmp_path / "bundle"
    out.mkdir()
    bundle.mkdir()
    (out / "evaluation.json").write_text(json.dumps({"figures": {"likeness": 0.8}}))
    (out / "evaluation.md").write_text("# Evaluation\n")
    (bundle / "manifest.json").write_text(json.dumps({"format": 2, "figures": {"encoder": 1, "speech": {"old": 2}}}))
    record(bundle, out)
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest == {"format": 2, "figures": {"encoder": 1, "speech": {"likeness": 0.8}}}
    assert (bundle / "evaluation.md").read_text() == "# Evaluation\n"
    assert json.loads((bundle / "evaluation.json").read_text()) == {"figures": {"likeness": 0.8}}
