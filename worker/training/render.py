"""Pseudo-speakers with exact durations, rendered by warping the parts of a source-filter teacher.

The teacher (`hibari-tts`, one voice) predicts, per 12.5 ms, a harmonic envelope, a noise envelope, a free-phase
branch and F0, and a fixed synthesis turns them into 24 kHz audio. Stretching the envelopes along frequency moves the
formants as another vocal tract would, and F0 is scaled beside it, so one seed is one speaker.

    python -m worker.training.render --hours 3 --out DIR --text FILE --seed 1 --shard 0/2
"""

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from hibari import dsp

from worker.text.phonemes import PAD, SYMBOLS, Phonemizer
from worker.training.prompts import Prompts
from worker.training.shards import Utterance, fill_shard

Array = npt.NDArray[np.float32]

SAMPLE_RATE = 24000
PART_HOP = 300
DURATION_UNIT = 600
"""Samples in one unit of a duration (25 ms): two part frames."""

_BINS = 601
_DURATIONS = "/Clip_output_0"
_TEACHER_F0 = 197.0
_LEAD_UNITS, _TAIL_UNITS = 2, 4
_ACTIVE_RMS = 10 ** (-23 / 20)
_SILENT = frozenset(number for symbol, number in SYMBOLS.items() if symbol in ';:,.!?—…"()“” ') | {PAD}


@dataclass(frozen=True, slots=True)
class Speaker:
    """One pseudo-speaker: `formant` scales frequency, `pitch` F0, `pitch_range` its log excursions from the mean;
    `envelope` [601] is added to every log spectrum, `noise` [601] to the noise and free-phase ones, in neper;
    `pace` is the speed of speech."""

    seed: int
    formant: float
    bend: float
    pitch: float
    pitch_range: float
    pace: float
    envelope: Array
    noise: Array

    @classmethod
    def draw(cls, seed: int) -> "Speaker":
        """The speaker of a seed. Low voices tend to have long vocal tracts, but not always."""
        rng = np.random.default_rng([seed, 1])
        size = rng.random()
        build = 0.65 * size + 0.35 * rng.random()
        return cls(
            seed=seed,
            formant=0.80 + 0.32 * build,
            bend=float(rng.uniform(-0.05, 0.05)),
            pitch=float(np.exp(np.log(0.5) + size * np.log(1.25 / 0.5)) * rng.uniform(0.93, 1.07)),
            pitch_range=float(rng.uniform(0.6, 1.35)),
            pace=float(rng.uniform(0.85, 1.2)),
            envelope=_draw_envelope(rng),
            noise=_draw_noise(rng),
        )


def _octaves() -> Array:
    hertz = np.linspace(0, SAMPLE_RATE / 2, _BINS)
    return np.log2(np.maximum(hertz, 60.0) / 1000.0).astype(np.float32)


def _draw_envelope(rng: np.random.Generator) -> Array:
    """A tilt of up to 3 dB an octave with four smooth bumps of up to 5 dB."""
    octaves = _octaves()
    envelope = rng.uniform(-0.30, 0.22) * octaves
    for centre in rng.uniform(-2.5, 3.3, size=4):
        envelope += rng.uniform(-0.6, 0.6) * np.exp(-(((octaves - centre) / rng.uniform(0.3, 0.9)) ** 2))
    return envelope.astype(np.float32)


def _draw_noise(rng: np.random.Generator) -> Array:
    """A level of -3 to +5 dB, leaning to the high bands where breath is."""
    level = rng.uniform(-0.35, 0.6)
    return (level * (0.6 + 0.4 * np.clip(_octaves() / 3, -1, 1))).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the synthesis is made of, per 12.5 ms frame: log magnitudes `harmonic`, `noise` and `free` [F, 601] at a
    1200-point transform of 24 kHz audio, and `f0` [F] in Hz, 0 where unvoiced."""

    harmonic: Array
    noise: Array
    free: Array
    f0: Array


@dataclass(frozen=True, slots=True)
class Rendering:
    """`wav` [samples] at 24 kHz; `durations` holds 25 ms units, one an id, and sums to the length of `wav`."""

    wav: Array
    ids: npt.NDArray[np.int64]
    durations: npt.NDArray[np.int64]
    parts: Parts


class Renderer:
    """The teacher on one core."""

    def __init__(self, threads: int = 1) -> None:
        spec = importlib.util.find_spec("hibari")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("the teacher 'hibari-tts' is not installed")
        model = onnx.load(str(Path(spec.origin).parent / "assets" / "hibari.onnx"))
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(_DURATIONS))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._phonemizer = Phonemizer()

    def render(self, text: str, speaker: Speaker, seed: int) -> Rendering | None:
        """`text` in the voice of `speaker`, or None when it has nothing to say; `seed` fixes the noise."""
        ids = np.asarray(self._phonemizer.ids(text), np.int64)
        if not ids.size:
            return None
        rng = np.random.default_rng([seed, 2])
        speed = np.asarray([speaker.pace * rng.uniform(0.95, 1.05)], np.float32)
        *parts, durations = self._session.run(None, {"ids": ids[None], "speed": speed})
        harmonic, theta, noise, free, phase, f0 = (part[0] for part in parts)
        kept, durations = _trim(ids, durations.reshape(-1).round().astype(np.int64))
        warp = _warp_bins(speaker)
        bands = [_stretch(part[:, kept], warp) for part in (harmonic, theta, noise, free)]
        return _synthesize(
            bands, phase[:, kept][warp.round().astype(np.int64)], f0[kept], speaker, (ids, durations), rng
        )


def _trim(ids: npt.NDArray[np.int64], durations: npt.NDArray[np.int64]) -> tuple[slice, npt.NDArray[np.int64]]:
    """The part frames that stay when the silence at both ends is cut to a fixed length, and their durations."""
    kept = durations.copy()
    kept[0] = min(kept[0], _LEAD_UNITS)
    silent = np.isin(ids, list(_SILENT))
    first = len(ids) - int(np.argmin(silent[::-1]))
    excess = int(kept[first:].sum()) - _TAIL_UNITS
    for index in range(len(ids) - 1, first - 1, -1):
        taken = min(max(0, excess), max(0, int(kept[index]) - 1))
        kept[index] -= taken
        excess -= taken
    start = 2 * int(durations[0] - kept[0])
    return slice(start, start + 2 * int(kept.sum())), kept


def _warp_bins(speaker: Speaker) -> Array:
    """For each bin of the speaker the (fractional) bin of the teacher; `bend` moves the formants unevenly."""
    bins = np.arange(_BINS) / speaker.formant
    return np.clip(bins * (1 + speaker.bend * np.sin(np.pi * bins / 250)), 0, _BINS - 1).astype(np.float32)


def _stretch(part: Array, warp: Array) -> Array:
    low = np.minimum(warp.astype(np.int64), _BINS - 2)
    weight = (warp - low)[:, None]
    return np.asarray(part[low] * (1 - weight) + part[low + 1] * weight, np.float32)


def _scale_pitch(f0: Array, speaker: Speaker) -> Array:
    voiced = f0 > 40
    excursion = np.log(np.maximum(f0, 40) / _TEACHER_F0) * speaker.pitch_range
    scaled = np.clip(np.exp(excursion) * _TEACHER_F0 * speaker.pitch, 55, 500)
    return np.where(voiced, scaled, 0).astype(np.float32)


def _synthesize(
    bands: list[Array],
    phase: Array,
    f0: Array,
    speaker: Speaker,
    symbols: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    rng: np.random.Generator,
) -> Rendering:
    harmonic, theta, noise, free = bands
    harmonic = harmonic + speaker.envelope[:, None]
    breath = (speaker.envelope + speaker.noise)[:, None]
    noise, free, f0 = noise + breath, free + breath, _scale_pitch(f0, speaker)
    wav = dsp.synth(harmonic, theta, noise, free, phase, f0, rng)
    gain = _ACTIVE_RMS / active_level(wav)
    shift = np.float32(np.log(gain))
    parts = Parts((harmonic + shift).T, (noise + shift).T, (free + shift).T, f0)
    return Rendering((wav * gain).astype(np.float32), symbols[0], symbols[1], parts)


def active_level(wav: Array) -> float:
    """The root mean square over the frames within 25 dB of the loudest."""
    power = np.square(wav.reshape(-1, PART_HOP)).mean(axis=1)
    return float(np.sqrt(power[power > power.max() * 10**-2.5].mean())) + 1e-9


def write_shard(out: Path, prompts: Prompts, seed: int, hours: float, shard: tuple[int, int], speakers: int) -> None:
    """Write one shard's share of `hours`; see :func:`worker.training.shards.fill_shard`."""
    renderer = Renderer()

    def make(number: int) -> Utterance | None:
        rng = np.random.default_rng([seed, number])
        speaker, text = Speaker.draw(seed * 100_000 + int(rng.integers(speakers))), prompts.draw(rng)
        said = renderer.render(text, speaker, seed * 1_000_000 + number)
        if said is None:
            return None
        return Utterance(said.wav, said.ids, said.durations, DURATION_UNIT, str(speaker.seed), text)

    fill_shard(out, hours * 3600 * SAMPLE_RATE / shard[1], shard, make)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Render pseudo-speakers with exact durations.")
    parser.add_argument("--hours", type=float, required=True, help="hours of speech, all shards together")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speakers", type=int, default=600)
    parser.add_argument("--shard", default="0/1", help="i/n")
    options = parser.parse_args()
    first, count = (int(number) for number in options.shard.split("/"))
    prompts = Prompts.read(options.text)
    write_shard(options.out, prompts, options.seed, options.hours, (first, count), options.speakers)


if __name__ == "__main__":
    main()
