"""Frames to learn from: log-mels with the parts behind them, from rendered pseudo-speakers and from recordings.

    python -m worker.training.vocoder.corpus render --text FILE --out DIR --hours 3 --seed 1
    python -m worker.training.vocoder.corpus record --data DIR --out DIR --files 500 --seed 1

Both write shards `NAME-0000.npz` of about five minutes.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import soundfile
import soxr

from worker.sv2tts.mel import SAMPLE_RATE, Floats, log_mel
from worker.training.prompts import Prompts
from worker.training.render import Renderer, Speaker
from worker.training.vocoder.parts import Targets, teacher_targets, world_targets

SHARD_FRAMES = 30_000
SHARD_FILES = 40
PSEUDO_SPEAKERS = 5_000
LOUDNESS = 10 ** (-25 / 20)
LONGEST_S = 8.0


@dataclass(frozen=True, slots=True)
class Frames:
    """Log-mel [T, 80] with its parts: `f0` [T], `harmonic` and `noise` [2 T, 128]."""

    mel: Floats
    f0: Floats
    harmonic: Floats
    noise: Floats

    @classmethod
    def of(cls, wav: Floats, targets: Targets) -> Self:
        """Frames of a waveform at 24 kHz."""
        return cls(log_mel(wav)[: len(targets.f0)], targets.f0, targets.harmonic, targets.noise)

    @classmethod
    def read(cls, path: Path) -> Self:
        """A shard."""
        with np.load(path) as stored:
            return cls(*(stored[name] for name in ("mel", "f0", "harmonic", "noise")))


def join_frames(pieces: list[Frames]) -> Frames:
    """Frames of several utterances, one after the other."""
    columns = ([getattr(piece, name) for piece in pieces] for name in ("mel", "f0", "harmonic", "noise"))
    return Frames(*(np.concatenate(column) for column in columns))


def write_shard(path: Path, frames: Frames) -> None:
    """Store frames in half precision; the file appears only when it is whole."""
    part = path.with_suffix(".part.npz")
    half = {name: getattr(frames, name).astype(np.float16) for name in ("mel", "harmonic", "noise")}
    np.savez(part, f0=frames.f0, **half)
    part.rename(path)


def render_frames(renderer: Renderer, prompts: Prompts, seed: Sequence[int]) -> Iterator[Frames]:
    """Endless utterances of pseudo-speakers."""
    rng = np.random.default_rng([*seed, 7])
    while True:
        speaker = Speaker.draw(int(rng.integers(PSEUDO_SPEAKERS)) + 1_000_000)
        rendering = renderer.render(prompts.draw(rng), speaker, int(rng.integers(2**31)))
        if rendering is not None:
            yield Frames.of(rendering.wav, teacher_targets(rendering.parts, len(rendering.wav) // 240))


def read_recording(path: Path) -> Floats:
    """Up to 8 s of a recording, mono at 24 kHz, at a common loudness."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples[: int(LONGEST_S * rate)].mean(axis=1)
    wav = np.asarray(soxr.resample(mono, rate, SAMPLE_RATE), np.float32)
    return wav * np.float32(LOUDNESS / (np.sqrt(np.mean(wav**2)) + 1e-9))


def record_frames(paths: list[Path]) -> Iterator[Frames]:
    """Recordings with their WORLD analyses."""
    for path in paths:
        wav = read_recording(path)
        yield Frames.of(wav, world_targets(wav, len(wav) // 240))


def list_recordings(folders: list[Path], count: int, seed: int) -> list[Path]:
    """A random choice of the training recordings, evaluation sets left out."""
    found = sorted(path for data in folders for kind in ("*.flac", "*.mp3", "*.wav") for path in data.rglob(kind))
    usable = [path for path in found if "test" not in path.parent.name]
    chosen = np.random.default_rng(seed).permutation(len(usable))[:count]
    return [usable[index] for index in chosen]


def write_shards(out: Path, name: str, source: Callable[[int], Iterator[Frames]], total: int) -> None:
    """Gather `source` of each shard's number into shards until there are `total` frames or no more.

    A shard that is there counts and is left as it is, so that a killed run goes on where it was.
    """
    out.mkdir(parents=True, exist_ok=True)
    written = number = 0
    while written < total:
        path = out / f"{name}-{number:04d}.npz"
        if not path.exists():
            pieces = gather(source(number), min(SHARD_FRAMES, total - written))
            if not pieces:
                return
            write_shard(path, join_frames(pieces))
        written += len(Frames.read(path).f0)
        number += 1


def gather(source: Iterator[Frames], count: int) -> list[Frames]:
    """The first utterances that hold `count` frames together, or all there are."""
    pieces: list[Frames] = []
    held = 0
    for frames in source:
        pieces.append(frames)
        held += len(frames.f0)
        if held >= count:
            break
    return pieces


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Prepare frames for the vocoder's training.")
    parser.add_argument("kind", choices=("render", "record"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="one sentence a line, for renders")
    parser.add_argument("--data", type=Path, action="append", default=[], help="folder of recordings")
    parser.add_argument("--hours", type=float, default=3.0, help="of renders")
    parser.add_argument("--files", type=int, default=500, help="recordings to analyse")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", default="0/1", help="i/n, of the recordings")
    options = parser.parse_args()
    first, count = (int(number) for number in options.shard.split("/"))
    name = f"{options.kind}-{options.seed}"
    if options.kind == "render":
        renderer, prompts = Renderer(), Prompts.read(options.text)
        total = int(options.hours * 360_000)
        write_shards(options.out, name, lambda number: render_frames(renderer, prompts, (options.seed, number)), total)
        return
    paths = list_recordings(options.data, options.files, options.seed)[first::count]
    name = f"{name}-{first}" if count > 1 else name
    parts = [paths[low : low + SHARD_FILES] for low in range(0, len(paths), SHARD_FILES)]
    write_shards(options.out, name, lambda number: record_frames(parts[number] if number < len(parts) else []), 10**9)


if __name__ == "__main__":
    main()
