"""What was judged already, one line of JSON each, so that a killed evaluation goes on where it stopped."""

import hashlib
import io
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

import worker.sv2tts
import worker.text
from worker.sv2tts.mel import SAMPLE_RATE, Floats
from worker.training.judging.errors import JudgingError
from worker.training.judging.hearing import Judgement, Task

_SPEAKING = (worker.sv2tts, worker.text)
_JUDGING = (
    *("hearing.py", "lapses.py", "naturalness.py", "people.py", "../recognition.py"),
    *("../../sv2tts/encoder.py", "../../sv2tts/mel.py"),
)


def mark_of(*parts: str) -> str:
    """A checksum of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@cache
def mark_of_speaking() -> str:
    """A checksum of the code that speaks: what other code said is said again."""
    folders = (Path(folder) for package in _SPEAKING for folder in package.__path__)
    files = sorted(path for folder in folders for path in folder.glob("*.py"))
    return mark_of(*(path.read_text(encoding="utf-8") for path in [*files, Path(__file__).with_name("speakers.py")]))


def mark_of_judging() -> str:
    """A checksum of the code that judges: what other code judged is judged again."""
    return mark_of(*((Path(__file__).parent / name).read_text(encoding="utf-8") for name in _JUDGING))


class Notebook:
    """Judgements by key under a folder, and the sound of those that are kept for listening."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._path, self._sounds, self._mark = folder / "judged.jsonl", folder / "sounds", mark
        try:
            self._sounds.mkdir(parents=True, exist_ok=True)
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        except OSError as problem:
            fix = "name another folder with --out"
            raise JudgingError(folder, f"cannot be used ({problem.strerror})", fix) from problem
        self._known = dict(_read_lines(lines))
        # A killed run leaves half a line, which must not swallow the next one.
        self._lead = "\n" if lines else ""

    def key(self, task: Task) -> str:
        """The key of a task with this ear and code."""
        return mark_of(self._mark, task.mark, task.system, task.speaker, task.kind, task.text)

    def find(self, task: Task) -> Judgement | None:
        """The judgement of a task that is complete."""
        key = self.key(task)
        if task.kept and not self._sound_path(key).exists():
            return None
        return self._known.get(key)

    def sound(self, task: Task) -> Floats:
        """The sound of a kept task that was judged, float32[N] at 24 kHz."""
        return np.asarray(soundfile.read(self._sound_path(self.key(task)), dtype="float32")[0], np.float32)

    def write(self, task: Task, judgement: Judgement, wav: Floats) -> None:
        """Remember a judgement; raises OSError when the disk is full."""
        key = self.key(task)
        if task.kept:
            part, sound = self._sound_path(key).with_suffix(".part"), io.BytesIO()
            soundfile.write(sound, np.clip(wav, -1, 1), SAMPLE_RATE, format="FLAC", subtype="PCM_16")
            part.write_bytes(sound.getvalue())
            part.replace(self._sound_path(key))
        with self._path.open("a", encoding="utf-8") as file:
            line = json.dumps({"key": key, "judgement": judgement.to_json()}, ensure_ascii=False)
            file.write(f"{self._lead}{line}\n")
        self._known[key], self._lead = judgement, ""

    def _sound_path(self, key: str) -> Path:
        return self._sounds / f"{key}.flac"


def _read_lines(lines: Iterable[str]) -> Iterable[tuple[str, Judgement]]:
    for line in lines:
        try:
            stored = json.loads(line)
            yield str(stored["key"]), Judgement.from_json(stored["judgement"])
        except (ValueError, TypeError, KeyError):
            continue
