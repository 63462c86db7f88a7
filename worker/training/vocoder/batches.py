"""Random crops of the prepared frames, made harder so that the network bears what a synthesizer predicts.

Some crops get another loudness and another colour (added to the mel and to its parts alike); some get a mel that is
smoothed over time or frequency, or noisy, while the parts stay as they were.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from worker.sv2tts.mel import FLOOR, N_MELS, Floats
from worker.training.vocoder.corpus import Frames
from worker.training.vocoder.network import LOOK_AHEAD, mel_to_knots

_SILENCE = np.float32(np.log(FLOOR))
_QUIET = np.float32(-14.0)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws batches from shards, each shard with a weight that multiplies its length."""

    shards: tuple[Frames, ...]
    chances: Floats
    crop: int
    spread: Floats

    @classmethod
    def read(cls, folder: Path, crop: int, record_weight: float) -> "Sampler":
        """All shards of a folder; those of recordings count `record_weight` times."""
        paths = sorted(path for path in folder.glob("*.npz") if ".part" not in path.name)
        shards = tuple(Frames.read(path) for path in paths)
        weights = [
            len(shard.f0) * (record_weight if path.name.startswith("record") else 1.0)
            for path, shard in zip(paths, shards, strict=True)
        ]
        return cls(shards, np.asarray(weights, np.float32) / sum(weights), crop, mel_to_knots().numpy())

    def draw(self, rng: np.random.Generator, size: int, hard: bool = True) -> Frames:
        """`size` crops: mel [B, crop, 80] and the parts of its frames, delayed by the network's look-ahead."""
        crops = [self._crop(rng, hard) for _ in range(size)]
        return Frames(*(np.stack(column) for column in zip(*crops, strict=True)))

    def _crop(self, rng: np.random.Generator, hard: bool) -> tuple[Floats, Floats, Floats, Floats]:
        shard = self.shards[rng.choice(len(self.shards), p=self.chances)]
        start = int(rng.integers(LOOK_AHEAD, len(shard.f0) - self.crop))
        late = slice(start - LOOK_AHEAD, start - LOOK_AHEAD + self.crop)
        mel = shard.mel[start : start + self.crop].astype(np.float32)
        twice = slice(2 * late.start, 2 * late.stop)
        harmonic, noise = shard.harmonic[twice].astype(np.float32), shard.noise[twice].astype(np.float32)
        if hard:
            colour = draw_colour(rng)
            shift = colour @ self.spread
            mel = np.maximum(mel + colour, _SILENCE)
            harmonic, noise = np.maximum(harmonic + shift, _QUIET), np.maximum(noise + shift, _QUIET)
            mel = blur_mel(mel, rng)
        return mel, shard.f0[late], harmonic, noise


def draw_colour(rng: np.random.Generator) -> Floats:
    """A loudness of -13 to +6 dB with a tilt and a slow ripple over the mel bands, float32[80] in neper."""
    bands = np.linspace(-1, 1, N_MELS)
    colour = rng.uniform(-1.5, 0.7) + rng.uniform(-0.5, 0.5) * bands
    colour += rng.uniform(0, 0.3) * np.sin(rng.uniform(1, 6) * bands + rng.uniform(0, 2 * np.pi))
    return colour.astype(np.float32)


def blur_mel(mel: Floats, rng: np.random.Generator) -> Floats:
    """Half of the time the mel as it is, else smoothed and with up to 0.15 neper of noise."""
    if rng.random() < 0.5:
        return mel
    side = rng.uniform(0, 0.3)
    if rng.random() < 0.6:
        mel = smooth_rows(mel, side)
    if rng.random() < 0.6:
        mel = smooth_rows(mel.T, rng.uniform(0, 0.25)).T
    level = rng.uniform(0, 0.15)
    return np.maximum(mel + rng.normal(0, level, mel.shape), _SILENCE).astype(np.float32)


def smooth_rows(rows: Floats, side: float) -> Floats:
    """Each row mixed with its neighbours, which weigh `side` each."""
    padded = np.pad(rows, ((1, 1), (0, 0)), mode="edge")
    return ((1 - 2 * side) * rows + side * (padded[:-2] + padded[2:])).astype(np.float32)
