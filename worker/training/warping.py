"""Dynamic time warping of mel cepstra (Sakoe and Chiba, 1978): which frame of one reading is which of another."""

import numpy as np
import numpy.typing as npt
import scipy.fft
import soxr

from worker.sv2tts.encoder import ENCODER_RATE, power_mel

Array = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_CEPSTRA = 14


def cepstra(wav: Array, rate: int) -> Array:
    """Normalised mel cepstra and their slopes [frames, 28], 10 ms a frame."""
    mel = power_mel(soxr.resample(wav, rate, ENCODER_RATE).astype(np.float32))
    base = scipy.fft.dct(np.log(mel + 1e-6), norm="ortho", axis=1)[:, :_CEPSTRA]
    slope = np.gradient(base, axis=0) * 2
    both = np.concatenate([base, slope], axis=1)
    return np.asarray((both - both.mean(axis=0)) / (both.std(axis=0) + 1e-3), np.float32)


def warp_path(first: Array, second: Array) -> tuple[Integers, Integers, float]:
    """The cheapest monotonic path through two feature sequences, and its mean distance.

    Every cell costs its distance once, so a diagonal move is favoured over two straight ones. Rows of the sheared
    matrix are antidiagonals, each of which depends on the two before it.
    """
    rows, columns = len(first), len(second)
    square = (first**2).sum(1)[:, None] + (second**2).sum(1)[None] - 2 * first @ second.T
    distance = np.sqrt(np.maximum(square, 0))
    row = np.arange(rows)
    before, last = np.full(rows + 1, np.inf), np.full(rows + 1, np.inf)
    moves = np.zeros((rows + columns - 1, rows), np.int8)
    for diagonal in range(rows + columns - 1):
        inside = (row <= diagonal) & (diagonal - row < columns)
        options = np.stack([before[:-1], last[:-1], last[1:]])
        move = options.argmin(axis=0)
        best = np.where(diagonal == 0, 0.0, options[move, row])
        moves[diagonal] = move
        current = np.full(rows + 1, np.inf)
        current[1:][inside] = best[inside] + distance[row[inside], diagonal - row[inside]]
        before, last = last, current
    path = [(rows - 1, columns - 1)]
    while path[-1] != (0, 0):
        one, other = path[-1]
        move = moves[one + other, one]
        path.append((one - (move != 2), other - (move != 1)))
    steps = np.asarray(path[::-1])
    return steps[:, 0], steps[:, 1], float(distance[steps[:, 0], steps[:, 1]].mean())
