"""Recordings of real people with a duration for every phoneme, by warping the teacher's reading onto them.

The teacher says the transcript, so its durations are known; dynamic time warping of cepstra
carries them over. Done twice: the first pass shows where the reader pauses, the second has commas there.

    python -m worker.training.align --data DIR --out DIR [--shard 0/2]

`--data` holds `transcripts.tsv` (name and text, tab between) and `NAME.flac`, or sound files that all say `--text`.
What is there already is left as it is, so a run that was killed goes on where it was.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from worker.errors import TrainingError
from worker.sv2tts.mel import log_mel
from worker.text.phonemes import PAD, SYMBOLS
from worker.training.prompts import WORD_LIMIT
from worker.training.render import DURATION_UNIT, SAMPLE_RATE, Array, Renderer, Rendering, Speaker, active_level
from worker.training.transcripts import Spoken, list_recordings
from worker.training.warping import Integers, cepstra, warp_path

_FRAME = 240
_PAUSE_FRAMES = 12
_PAUSE_DROP = 3.2
"""Nepers below the loud frames at which a frame counts as silent."""

_EDGE_FRAMES = 5
_LONGEST = 40
"""Frames that no symbol lasts for; a piece with a longer one is misread or holds a pause nobody marked."""

_QUIET_START, _QUIET_END, _SILENT_END = 10 ** (-10 / 20), 10 ** (-18 / 20), 10 ** (-30 / 20)
_LEVEL = 10 ** (-23 / 20)
_SPACE = SYMBOLS[" "]
_BODIES = (0.84, 0.93, 1.04)


@dataclass(frozen=True, slots=True)
class Recording:
    """`wav` at 24 kHz and what is said in it."""

    name: str
    speaker: str
    wav: Array
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Symbols of a recording and the 10 ms frame where each ends; `cost` is the mean distance along the path."""

    ids: Integers
    ends: Integers
    cost: float


def read_recording(spoken: Spoken, speaker: str) -> Recording:
    """A recording at an even level, mono. Raises TrainingError when its sound cannot be decoded or is silent."""
    try:
        samples, rate = soundfile.read(spoken.path, dtype="float32", always_2d=True)
    except (RuntimeError, OSError) as problem:
        raise TrainingError(f"{spoken.path} cannot be decoded ({problem}): take it out") from problem
    wav = soxr.resample(samples.mean(axis=1), rate, SAMPLE_RATE).astype(np.float32)
    wav = wav[: len(wav) // 600 * 600]
    if not np.isfinite(wav).all() or not wav.any():
        raise TrainingError(f"{spoken.path} holds no sound: take it out")
    said = spoken.text.lower() if spoken.text.isupper() else spoken.text
    level = np.float32(_LEVEL / active_level(wav))
    return Recording(spoken.name, speaker, wav * level, tuple(said.split()))


def _reader(body: float) -> Speaker:
    """A plain teacher whose formants are scaled by `body`."""
    plain = Speaker.draw(0)
    flat = np.zeros_like(plain.envelope)
    return Speaker(0, body, 0.0, body**2, 1.0, 1.0, flat, flat)


def _carry(rendering: Rendering, wav: Array) -> Aligned:
    """The durations of a rendering, carried over to a recording; every symbol lasts at least one frame."""
    theirs, ours, cost = warp_path(cepstra(rendering.wav, SAMPLE_RATE), cepstra(wav, SAMPLE_RATE))
    limits = np.cumsum(rendering.durations) * DURATION_UNIT // _FRAME
    ends = np.asarray([int(np.median(ours[theirs == min(limit, theirs[-1])])) for limit in limits], np.int64)
    ends[-1] = len(wav) // _FRAME
    for index in range(len(ends) - 2, -1, -1):
        ends[index] = min(ends[index], ends[index + 1] - 1)
    for index in range(len(ends)):
        ends[index] = max(ends[index], (ends[index - 1] if index else 0) + 1)
    return Aligned(rendering.ids, ends, cost)


def loudness(wav: Array) -> Array:
    """Log level [frames] at 10 ms over the speech band."""
    return np.asarray(np.log(np.exp(log_mel(wav)[:, 2:60]).mean(axis=1)), np.float32)


def _find_pauses(aligned: Aligned, levels: Array) -> list[int]:
    """Numbers of the spaces at which the reader is silent for long."""
    silent = levels < np.quantile(levels, 0.9) - _PAUSE_DROP
    spaces = np.flatnonzero(aligned.ids == _SPACE)
    found = []
    for number, place in enumerate(spaces):
        middle = int(aligned.ends[place])
        around = silent[max(0, middle - 15) : middle + 15]
        if around.sum() >= _PAUSE_FRAMES:
            found.append(number)
    return found


def align_recording(renderer: Renderer, recording: Recording) -> Aligned | None:
    """The alignment of a recording, or None when its words and the reading's do not match one to one."""
    attempts = [(_read_words(renderer, recording.words, body, recording.wav), body) for body in _BODIES]
    matching = [(aligned, body) for aligned, body in attempts if aligned is not None]
    if not matching:
        return None
    first, body = min(matching, key=lambda attempt: attempt[0].cost)
    pauses = set(_find_pauses(first, loudness(recording.wav)))
    words = [
        word + ("," if number in pauses and word[-1].isalnum() else "") for number, word in enumerate(recording.words)
    ]
    return _read_words(renderer, words, body, recording.wav) or first


def _read_words(renderer: Renderer, words: Sequence[str], body: float, wav: Array) -> Aligned | None:
    rendering = renderer.render(" ".join(words), _reader(body), 0)
    if rendering is None or (rendering.ids == _SPACE).sum() != len(words) - 1:
        return None
    return _carry(rendering, wav)


def cut_pieces(aligned: Aligned, levels: Array, limit: int) -> list[tuple[Integers, Integers, int, int]]:
    """Pieces of at most `limit` words: ids, durations in frames, first frame, last frame.

    Each cut is made at the quietest place among the next word boundaries, late ones preferred.
    """
    spaces = np.flatnonzero(aligned.ids == _SPACE)
    stops = [int(place) for place in spaces] + [len(aligned.ids) - 1]
    quiet = [float(levels[max(0, aligned.ends[stop] - 6) : aligned.ends[stop] + 4].min()) for stop in stops[:-1]]
    pieces, word, start_symbol, start_frame = [], 0, 1, 0
    while word < len(stops):
        choices = range(min(word + 2, len(stops) - 1), min(word + limit, len(stops)))
        if len(stops) - word <= limit:
            stop = len(stops) - 1
        else:
            stop = min(choices, key=lambda index: quiet[index] - 0.25 * (index - word))
        pieces.append(_cut_piece(aligned, levels, (start_symbol, stops[stop]), start_frame))
        start_symbol, start_frame, word = stops[stop] + 1, pieces[-1][3], stop + 1
    return pieces


def _cut_piece(
    aligned: Aligned, levels: Array, symbols: tuple[int, int], low: int
) -> tuple[Integers, Integers, int, int]:
    """One piece from symbol to symbol (exclusive), its silence at both ends cut to `_EDGE_FRAMES`."""
    first, stop = symbols
    onset, high = int(aligned.ends[first - 1]), int(aligned.ends[stop - 1])
    if stop < len(aligned.ids) - 1:
        pause = slice(high - 4, int(aligned.ends[stop]) + 4)
        high = max(high - 4 + int(levels[pause].argmin()) + 1, int(aligned.ends[stop - 2]) + 2)
    else:
        high = int(aligned.ends[-1])
    silent = levels < np.quantile(levels, 0.9) - _PAUSE_DROP - 0.5
    start = max(low, onset - _EDGE_FRAMES)
    finish = high
    while finish - 1 > aligned.ends[stop - 2] + 2 and silent[finish - 1] and silent[finish - 1 - _EDGE_FRAMES]:
        finish -= 1
    inner = np.clip(aligned.ends[first:stop], start + 2, finish - 1)
    bounds = np.concatenate([[start, max(start + 1, min(onset, int(inner[0]) - 1))], inner, [finish]])
    ids = np.concatenate([[PAD], aligned.ids[first:stop], [PAD]])
    return ids, np.diff(bounds), start, finish


def is_whole(wav: Array, durations: Integers) -> bool:
    """Whether a piece begins and ends quietly and its last sound is not clipped: speech that was cut in mid-flow would
    teach abrupt ends. `durations` are in frames, the pads included."""
    levels = np.sqrt(np.square(wav[: len(wav) // _FRAME * _FRAME].reshape(-1, _FRAME)).mean(axis=1))
    loud = active_level(wav[: len(wav) // 600 * 600])
    # A full stop is short, too, but nothing sounds in it.
    clipped = durations[-1] <= 1 and durations[-2] <= 2 and levels[-2:].max() > loud * _SILENT_END
    quiet = levels[:2].max() < loud * _QUIET_START and levels[-2:].max() < loud * _QUIET_END
    return bool(quiet and not clipped and durations.min() >= 1 and durations.max() <= _LONGEST)


def write_pieces(recording: Recording, aligned: Aligned, out: Path, limit: int) -> int:
    """Write the whole pieces of a recording as utterances that `dataset` reads, each file whole; their number."""
    levels = loudness(recording.wav)
    written = 0
    for number, (ids, durations, low, high) in enumerate(cut_pieces(aligned, levels, limit)):
        wav = recording.wav[low * _FRAME : high * _FRAME]
        if not is_whole(wav, durations):
            continue
        path = out / f"{recording.name}-{number:02d}.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez(
                file, wav=np.clip(wav * 32767, -32768, 32767).astype(np.int16), ids=ids, durations=durations,
                unit=_FRAME, speaker=recording.speaker, cost=aligned.cost,
            )  # fmt: skip
        path.with_suffix(".part").rename(path)
        written += 1
    return written


def align_shard(recordings: Sequence[Spoken], out: Path, speaker: str | None, limit: int, worst: float) -> None:
    """Write the pieces of recordings; an empty `NAME.done` says that a recording needs no second look.

    The speaker of a recording is what its name begins with, up to the first dash, unless there is one for all.
    """
    renderer: Renderer | None = None
    for spoken in recordings:
        mark = out / f"{spoken.name}.done"
        if mark.exists():
            continue
        renderer = renderer or Renderer()
        recording = read_recording(spoken, speaker or spoken.name.split("-")[0])
        aligned = align_recording(renderer, recording)
        if aligned is not None and aligned.cost < worst:
            write_pieces(recording, aligned, out, limit)
        mark.touch()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Align recordings of real people.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", help="what every sound file of the folder says")
    parser.add_argument("--speaker", help="the one speaker of all; else a name begins with it, up to a dash")
    parser.add_argument("--leave-out", action="append", default=[], help="a recording's name that is not used")
    parser.add_argument("--limit", type=int, default=WORD_LIMIT, help="words in a piece, at most")
    parser.add_argument("--worst", type=float, default=6.0, help="the largest mean distance that is kept")
    parser.add_argument("--shard", default="0/1", help="i/n")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    first, count = (int(number) for number in options.shard.split("/"))
    found = list_recordings(options.data, options.text).recordings
    wanted = [spoken for spoken in found if spoken.name not in set(options.leave_out)]
    align_shard(wanted[first::count], options.out, options.speaker, options.limit, options.worst)
    print(len(list(options.out.glob("*.npz"))), "pieces")


if __name__ == "__main__":
    main()
