"""worker.training.promote, with the bundle in the repository as candidate."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from worker.sv2tts.bundle import Bundle
from worker.training.promote import main

BASE = Path(__file__).resolve().parents[3] / "bundles" / "base"
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


def _link_bundle(folder: Path, figures: dict[str, float], **material: Any) -> Path:
    """The bundle of the repository under another name, its graphs as hard links where possible, and an evaluation."""
    folder.mkdir()
    for path in BASE.glob("*"):
        if path.suffix in (".onnx", ".safetensors"):
            try:
                os.link(path, folder / path.name)
            except OSError:
                shutil.copyfile(path, folder / path.name)
    manifest = json.loads((BASE / "manifest.json").read_text())
    manifest["figures"] = {"speech": figures}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    evaluation = {
        "format": 1,
        "graphs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.onnx")},
        "figures": figures,
        "intervals": {"likeness": [0.77, 0.79]},
        "material": {"speakers": ["a", "b"], **material},
        "sentences": [{"system": "vocoder", "words": 10}] * 60,
    }
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    (folder / "evaluation.md").write_text("# Evaluation\n")
    return folder


def _replace(path: Path, content: bytes) -> None:
    """Write a file anew, so that the file it was linked to keeps its content."""
    path.unlink()
    path.write_bytes(content)


def _run(candidate: Path, service: Path, *more: str) -> int:
    return main(["--candidate", str(candidate), "--service", str(service), *more])


def test_a_better_bundle_takes_the_place_and_the_earlier_one_is_kept(tmp_path: Path) -> None:
    """The service folder holds the candidate with its evaluation, `--keep` the bundle of before, and nothing is left
    beside them."""
    service = _link_bundle(tmp_path / "service", {**GOOD, "likeness": 0.75})
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    (candidate / "checkpoint.pt").write_bytes(b"not part of it")
    assert _run(candidate, service, "--keep", str(tmp_path / "before")) == 0
    assert Bundle.load(service).manifest["figures"]["speech"] == GOOD
    assert json.loads((service / "evaluation.json").read_text())["figures"] == GOOD
    assert (service / "evaluation.md").exists()
    assert not (service / "checkpoint.pt").exists()
    assert Bundle.load(tmp_path / "before").manifest["figures"]["speech"]["likeness"] == 0.75
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before", "candidate", "service"]


def test_a_worse_bundle_is_refused_with_the_figure_and_by_how_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1, the table names the figure, and what is in service stays as it was."""
    service = _link_bundle(tmp_path / "service", GOOD)
    candidate = _link_bundle(tmp_path / "candidate", {**GOOD, "likeness": 0.74})
    assert _run(candidate, service) == 1
    assert "is worse by 0.040" in capsys.readouterr().out
    assert Bundle.load(service).manifest["figures"]["speech"] == GOOD


def test_a_check_moves_nothing(tmp_path: Path) -> None:
    """`--check` says whether a bundle would pass, also of the one in service itself."""
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    assert _run(candidate, candidate, "--check") == 0
    assert _run(candidate, tmp_path / "service", "--check") == 0
    assert not (tmp_path / "service").exists()
    assert _run(candidate, candidate) == 1


def test_an_evaluation_of_other_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures belong to checksums: with one graph changed they are those of another bundle."""
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    evaluation = json.loads((candidate / "evaluation.json").read_text())
    evaluation["graphs"]["vocoder.onnx"] = "0" * 64
    (candidate / "evaluation.json").write_text(json.dumps(evaluation))
    assert _run(candidate, tmp_path / "service") == 1
    message = capsys.readouterr().err
    assert "other files" in message
    assert "vocoder.onnx" in message
    assert not (tmp_path / "service").exists()


def test_a_manifest_that_boasts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures in the manifest are those of the evaluation."""
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    manifest = json.loads((candidate / "manifest.json").read_text())
    manifest["figures"]["speech"]["likeness"] = 0.95
    (candidate / "manifest.json").write_text(json.dumps(manifest))
    assert _run(candidate, tmp_path / "service") == 1
    assert "the manifest says likeness 0.95, the evaluation 0.78" in capsys.readouterr().err


def test_evaluations_of_other_people_do_not_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both bundles were judged with the same speakers, sentences and recogniser, or are not compared at all."""
    service = _link_bundle(tmp_path / "service", GOOD, recogniser="tiny")
    candidate = _link_bundle(tmp_path / "candidate", GOOD, recogniser="base")
    assert _run(candidate, service) == 1
    assert "recogniser is base and tiny" in capsys.readouterr().err


def test_a_bundle_that_cannot_be_loaded_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A graph that is cut off is named, and there is no traceback."""
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    _replace(candidate / "vocoder.onnx", (BASE / "vocoder.onnx").read_bytes()[:-1])
    assert _run(candidate, tmp_path / "service") == 1
    assert "vocoder.onnx" in capsys.readouterr().err


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A weight that is not finite refuses the bundle, though every checksum is right."""
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    content = len(header).to_bytes(8, "little") + header + b"\x00\x00\xc0\x7f"
    _replace(candidate / "synthesizer.safetensors", content)
    manifest = json.loads((candidate / "manifest.json").read_text())
    entry = manifest["files"]["synthesizer.safetensors"]
    entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (candidate / "manifest.json").write_text(json.dumps(manifest))
    assert _run(candidate, tmp_path / "service") == 1
    assert "not finite" in capsys.readouterr().err


def test_a_bundle_that_is_too_large_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More than 45 MB do not come into the repository."""
    candidate = _link_bundle(tmp_path / "candidate", GOOD)
    (candidate / "MODEL_CARD.md").write_bytes(b" " * 20_000_000)
    assert _run(candidate, tmp_path / "service") == 1
    assert "more than 45000000" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": 1}', "[" * 100_000])
def test_an_evaluation_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    """A report that is missing, empty, cut off or something else is named with the fix."""
    candidate, path = _link_bundle(tmp_path / "candidate", GOOD), tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    assert _run(candidate, tmp_path / "service", "--evaluation", str(path)) == 1
    message = capsys.readouterr().err
    assert "other.json" in message
    assert "voice evaluate" in message


def test_a_taken_name_for_the_earlier_bundle_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--keep` never overwrites."""
    service, candidate = _link_bundle(tmp_path / "service", GOOD), _link_bundle(tmp_path / "candidate", GOOD)
    assert _run(candidate, service, "--keep", str(tmp_path)) == 1
    assert "exists already" in capsys.readouterr().err
    assert service.exists()
