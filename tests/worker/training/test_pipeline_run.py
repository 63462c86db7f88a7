"""`./dev voice train` as a whole: from nothing to a bundle that speaks, through kills and nonsense."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the `training` extra")

from worker.sv2tts.bundle import MANIFEST, Bundle
from worker.training.pipeline.card import write_card

ROOT = Path(__file__).parents[3]
DEADLINE_S = 400.0


def command(out: Path, *more: str) -> list[str]:
    """A run on the package-shipped teacher alone, of the smallest size."""
    program = [sys.executable, "-m", "worker.training.pipeline", "--out", str(out), "--no-kokoro", "--jobs", "2"]
    return [*program, *more]


def train(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, *more), cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)


def count_utterances(out: Path) -> int:
    return len(list((out / "data" / "pseudo").glob("*.npz")))


def read_corpus(out: Path) -> dict[str, np.ndarray]:
    folder = out / "corpora" / "pseudo"
    return {"mels": np.load(folder / "mels.npy"), **np.load(folder / "corpus.npz")}


@pytest.mark.timeout(DEADLINE_S)
def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path) -> None:
    """`kill -9` in the midst of rendering, then the same command again: the corpus is that of an undisturbed run."""
    size = ("--hours", "0.02", "--until", "features")
    assert train(tmp_path / "whole", *size).returncode == 0
    killed = tmp_path / "killed"
    with subprocess.Popen(command(killed, *size), cwd=ROOT, stderr=subprocess.DEVNULL) as run:
        end = time.monotonic() + DEADLINE_S
        while count_utterances(killed) < 5:
            assert time.monotonic() < end
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    assert count_utterances(killed) < count_utterances(tmp_path / "whole")
    state = json.loads((killed / "run.json").read_text())
    assert state["stages"]["render"]["status"] == "running"
    again = train(killed, *size)
    assert again.returncode == 0, again.stderr
    one, other = read_corpus(tmp_path / "whole"), read_corpus(killed)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert np.array_equal(array, other[name]), name


@pytest.mark.timeout(DEADLINE_S)
def test_from_nothing_to_a_bundle_that_speaks(tmp_path: Path) -> None:
    """The smallest run goes through every stage to a bundle that loads, says something, and tells its origins."""
    pytest.importorskip("torch", reason="needs torch, which `./dev voice train` installs")
    out = tmp_path / "run"
    done = train(out, "--hours", "0.008", "--until", "bundle")
    assert done.returncode == 0, done.stderr
    bundle = Bundle.load(out / "bundle")
    assert speak(bundle).size > 2400
    assert bundle.manifest["files"]["vocoder.onnx"]["source"] == (
        "trained on pseudo-speakers rendered with hibari-tts 0.2.1 (Apache-2.0)"
    )
    again = train(out, "--hours", "0.008", "--until", "bundle")
    assert again.returncode == 0
    card = write_card(out).read_text()
    assert "hibari-tts" in card
    assert "| render | done |" in card
    assert (out / "bundle" / MANIFEST).exists()


def speak(bundle: Bundle) -> np.ndarray:
    from worker.sv2tts.synthesizer import Synthesizer
    from worker.sv2tts.vocoder import Vocoder

    embedding = np.full(256, 1 / 16, np.float32)
    utterance, stream, wavs = Synthesizer(bundle).start([1, 50, 60, 70, 1], embedding), Vocoder(bundle).start(), []
    while not utterance.finished:
        wavs.append(stream.push(utterance.step(), final=utterance.finished))
    wav = np.concatenate(wavs)
    assert np.isfinite(wav).all()
    return wav


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--hours", "0"], 2, "'0' is not a number above 0"),
        (["--hours", "soon"], 2, "'soon' is not a number above 0"),
        (["--seed", "-1"], 2, "not a whole number from 0"),
        (["--jobs", "0"], 2, "not a whole number from 1"),
        (["--data", "nowhere"], 1, "--data nowhere is not a folder"),
        (["--bundle", "nowhere"], 1, "manifest.json cannot be read"),
        (["--styles", "nowhere"], 1, "--styles nowhere is not a folder"),
        (["--bundle", "x", "--from-scratch"], 2, "not allowed with"),
    ],
)
def test_nonsense_is_a_sentence(tmp_path: Path, arguments: list[str], code: int, sentence: str) -> None:
    """What cannot be meant ends before anything is written, with an exit code and without a traceback."""
    done = train(tmp_path / "run", *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """The folder, the reason and the fix are told."""
    (tmp_path / "file").write_text("")
    done = train(tmp_path / "file" / "run")
    assert done.returncode == 1
    assert "cannot be written (Not a directory): give another folder with --out" in done.stderr
    assert "Traceback" not in done.stderr


def test_files_that_grow_too_large_end_the_stage_and_not_the_run(tmp_path: Path) -> None:
    """A disk that takes no more ends the stage with its name and the reason; with room again the run goes on."""
    import resource

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    size = ("--hours", "0.005", "--until", "render")
    full = subprocess.run(
        command(tmp_path / "run", *size), cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, preexec_fn=limit
    )
    assert full.returncode == 1
    assert "The stage `prepare` stopped in `materials`: [Errno 27] File too large" in full.stderr
    assert "Traceback" not in full.stderr
    assert (tmp_path / "run" / "run.json").stat().st_size > 0
    assert train(tmp_path / "run", *size).returncode == 0
