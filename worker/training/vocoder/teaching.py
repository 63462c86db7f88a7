"""Lessons for the narrow vocoder: mels, and what the full vocoder's graph makes of them.

Any mel will do, since the teacher answers every one: those of pseudo-speakers, of people, of a synthesizer, and each
made harder as for the teacher's own training.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

from worker.errors import TrainingError
from worker.sv2tts.envelope import NARROW_KNOTS, bins_at_knots
from worker.sv2tts.mel import FLOOR, N_MELS, Floats
from worker.training.vocoder.batches import blur_mel, draw_colour

CROP = 200
_SILENCE = np.float32(np.log(FLOOR))
_QUIET = -14.0
_TOGETHER = 16
_OUTPUTS = ["pitch", "voicing", "tone_real", "tone_imag", "noise"]

Mels = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Lessons:
    """Log-mels [N, T, 80] and what they mean: `pitch` in Hz and `voicing` (probability) [N, T], `harmonic` and `noise`
    levels [N, 2 T, 114], all of the frames LOOK_AHEAD earlier."""

    mel: NDArray[np.floating]
    pitch: Floats
    voicing: Floats
    harmonic: NDArray[np.floating]
    noise: NDArray[np.floating]

    def pick(self, rows: NDArray[np.intp]) -> "Lessons":
        """Some of them, in single precision."""
        return Lessons(*(column[rows].astype(np.float32) for column in list_columns(self)))


def list_columns(lessons: Lessons) -> tuple[NDArray[np.floating], ...]:
    """The columns, not copied."""
    return lessons.mel, lessons.pitch, lessons.voicing, lessons.harmonic, lessons.noise


@dataclass(frozen=True, slots=True)
class Corpus:
    """Mels to draw from, each file with a weight."""

    files: tuple[Mels, ...]
    chances: Floats

    @classmethod
    def read(cls, sources: list[str]) -> "Corpus":
        """Every `PATH[:share]`: a packed corpus (`mels.npy`), or a folder of shards of frames (`*.npz`).

        Raises TrainingError for a folder without mels; the shares need not add up to one.
        """
        files: list[Mels] = []
        chances: list[float] = []
        for source in sources:
            name, _, share = source.partition(":")
            found = read_mels(Path(name))
            total = sum(len(mels) for mels in found)
            files += found
            chances += [float(share or 1) * len(mels) / total for mels in found]
        return cls(tuple(files), np.asarray(chances, np.float32) / np.float32(sum(chances)))

    def draw(self, rng: np.random.Generator) -> Floats:
        """A crop [200, 80], two times in three made louder or softer, and some of those blurred."""
        mels = self.files[rng.choice(len(self.files), p=self.chances / self.chances.sum())]
        start = int(rng.integers(0, len(mels) - CROP))
        mel = mels[start : start + CROP].astype(np.float32)
        if rng.random() < 1 / 3:
            return mel
        return blur_mel(np.maximum(mel + draw_colour(rng), _SILENCE), rng)


def read_mels(folder: Path) -> list[Mels]:
    """The mels of a folder that are long enough for a crop."""
    packed = folder / "mels.npy"
    if packed.exists():
        found = [np.load(packed, mmap_mode="r")]
    else:
        found = [np.load(path)["mel"] for path in sorted(folder.glob("*.npz")) if ".part" not in path.name]
    usable = [mels for mels in found if len(mels) > CROP and mels.shape[1] == N_MELS]
    if not usable:
        raise TrainingError(f"{folder} holds no mels: it takes mels.npy or *.npz of frames, over {CROP} frames long")
    return usable


class Teacher:
    """The full vocoder's graph, whatever is inside."""

    def __init__(self, graph: Path) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = 1
        self._session = InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        shape = self._session.get_inputs()[1].shape
        self._cache = np.zeros((_TOGETHER, shape[1], shape[2]), np.float32)
        bins = next(output.shape[2] for output in self._session.get_outputs() if output.name == "noise")
        self._to_knots = bins_at_knots(bins, NARROW_KNOTS)

    def prepare(self, corpus: Corpus, seed: tuple[int, int], count: int) -> Lessons:
        """So many lessons (rounded up to sixteens), the same for the same seed."""
        rng = np.random.default_rng(seed)
        batches = [
            self.explain(np.stack([corpus.draw(rng) for _ in range(_TOGETHER)])) for _ in range(-(-count // _TOGETHER))
        ]
        return Lessons(*(np.concatenate(column) for column in zip(*map(list_columns, batches), strict=True)))

    def explain(self, mel: Floats) -> Lessons:
        """What the graph says of mels [16, T, 80]; big arrays in half precision."""
        pitch, voicing, real, imaginary, noise = self._session.run(_OUTPUTS, {"mel": mel, "cache": self._cache})
        harmonic = self._levels(np.hypot(real, imaginary))
        return Lessons(mel.astype(np.float16), pitch, voicing, harmonic, self._levels(noise))

    def _levels(self, magnitudes: Floats) -> NDArray[np.float16]:
        levels = np.log(np.maximum(magnitudes, 1e-7)) @ self._to_knots
        return np.maximum(levels, _QUIET).astype(np.float16)
