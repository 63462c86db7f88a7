"""`./dev voice adapt`: a folder of recordings with transcripts adapts the synthesizer of a bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytest.importorskip("onnx", reason="needs the `training` extra")

from worker.errors import TrainingError
from worker.sv2tts.bundle import Bundle
from worker.training.adapt import BASE, LEAST_RECORDINGS, hold_out
from worker.training.transcripts import Spoken

ROOT = Path(__file__).parents[3]
DEADLINE_S = 400.0
SENTENCES = (
    "We walked along the river until it got dark.",
    "The museum has a small collection of old maps.",
    "Please leave your name after the tone.",
    "He opened the letter slowly and read it twice.",
    "The last bus leaves at half past nine.",
    "Nobody had seen the blue blanket since Friday.",
)


def adapt(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "worker.training.adapt", *map(str, arguments)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Six recordings of one speaker who is nobody, with their transcripts."""
    from worker.training.render import Renderer, Speaker

    folder = tmp_path / "recordings"
    folder.mkdir()
    renderer, speaker = Renderer(), Speaker.draw(7_000_000_100)
    for number, sentence in enumerate(SENTENCES):
        rendering = renderer.render(sentence, speaker, number)
        assert rendering is not None
        soundfile.write(folder / f"take {number}.wav", np.clip(rendering.wav, -1, 1), 24000)
    lines = (f"take {number}\t{sentence}\n" for number, sentence in enumerate(SENTENCES))
    (folder / "transcripts.tsv").write_text("".join(lines))
    return folder


@pytest.mark.timeout(DEADLINE_S)
def test_recordings_become_a_whole_bundle(recordings: Path, tmp_path: Path) -> None:
    """The result loads, only its synthesizer is another, and likeness before and after is on what was held out."""
    pytest.importorskip("torch", reason="needs torch, which `./dev voice adapt` installs")
    if not (BASE / "synthesizer.safetensors").exists():
        pytest.skip("the shipped bundle has no weights to begin from")
    out = tmp_path / "run"
    done = adapt("--recordings", recordings, "--out", out, "--minutes", 0.1, "--rehearse", 0, "--pull", 0.01)
    assert done.returncode == 0, done.stderr
    bundle, base = Bundle.load(out / "bundle"), Bundle.load(BASE)
    other = {
        name
        for name, entry in bundle.manifest["files"].items()
        if entry["sha256"] != base.manifest["files"][name]["sha256"]
    }
    assert other == {"synthesizer.safetensors", "synthesizer_encoder.onnx", "synthesizer_decoder.onnx"}
    figures = json.loads((out / "adaptation.json").read_text())["figures"]
    assert bundle.manifest["figures"]["adaptation"] == figures
    assert all(-1 <= figures[name] <= 1 for name in ("likeness_before", "likeness_after", "likeness_of_recordings"))
    assert (
        "begun from the weights of the bundle 'base'" in bundle.manifest["files"]["synthesizer_decoder.onnx"]["source"]
    )
    assert "likeness after" in done.stderr


def test_what_is_held_out_is_spread_and_no_more_than_needed() -> None:
    """A seventh of the recordings, two at least and eight at most, from the whole of the folder."""
    recordings = [Spoken(str(number), Path("x"), "Hello.") for number in range(200)]
    assert [len(hold_out(recordings[:count])) for count in (6, 20, 40, 200)] == [2, 3, 6, 8]
    held = [int(name) for name in hold_out(recordings)]
    assert held == sorted(set(held))
    assert held[0] < 25
    assert held[-1] > 175
    with pytest.raises(TrainingError, match=f"only 5 usable recordings: add some, at least {LEAST_RECORDINGS}"):
        hold_out(recordings[:5])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--recordings", "nowhere"], 1, "--recordings nowhere is not a folder"),
        (["--recordings", ".", "--bundle", "nowhere"], 1, "manifest.json cannot be read"),
        (["--recordings", "tests"], 1, "transcripts.tsv cannot be read"),
        (["--recordings", ".", "--minutes", "0"], 2, "'0' is not a number above 0"),
        (["--recordings", ".", "--rate", "-1"], 2, "'-1' is not a number above 0"),
        (["--recordings", ".", "--rehearse", "1"], 2, "'1' is not a number from 0 to less than 1"),
        ([], 2, "--recordings"),
    ],
)
def test_nonsense_is_a_sentence(tmp_path: Path, arguments: list[str], code: int, sentence: str) -> None:
    """What cannot be meant ends before anything is written, with an exit code and without a traceback."""
    done = adapt("--out", tmp_path / "run", *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
