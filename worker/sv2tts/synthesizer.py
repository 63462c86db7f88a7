"""The synthesizer in service: phoneme ids and a speaker embedding become log-mel frames, 80 ms a call.

The network is a Tacotron 2 (Shen et al., 2018) conditioned on a GE2E embedding (Jia et al., 2018) whose attention is
windowed and monotonic: it reaches the last symbol of every utterance and cannot go back, so no words are lost,
repeated or invented after the end.
"""

from collections.abc import Sequence

import numpy as np

from worker.backends.graph import Arrays, Backend
from worker.backends.onnx import OnnxBackend
from worker.errors import NonFinite
from worker.sv2tts.bundle import EMBEDDING_SIZE, Bundle
from worker.sv2tts.mel import Floats

FRAMES_PER_CALL = 8
STEPS_PER_CALL = 2
LOOK_AHEAD = 4
"""Frames by which the post-net inside the decoder graph lags behind the decoder."""

WIDTH_STEP = 16
"""Utterances are padded to a multiple of this many symbols, alone as in a batch: the last bits of a product along the
symbols depend on what its length leaves beyond a multiple of four, and on nothing else."""

BEHIND = 1
"""Symbols before its place that the attention can still come back to."""

STEP_MS = 40
"""Milliseconds of sound that a decoder step makes."""

_FRAMES_PER_STEP = FRAMES_PER_CALL // STEPS_PER_CALL
_REACHED = 0.5
_CONSTANT = ("memory", "keys", "speaker", "lengths")


def step_ceiling(symbols: int) -> int:
    """The most decoder steps (40 ms each) an utterance of so many ids can take; the graph enforces the same number."""
    return 12 + 4 * symbols


class Synthesizer:
    """The synthesizer's graphs of a bundle. Utterances may be started by one thread while another one advances them."""

    def __init__(self, bundle: Bundle, threads: int = 1, backend: Backend | None = None) -> None:
        backend = backend or OnnxBackend(threads=threads)
        self._encoder = backend.open(bundle, "synthesizer_encoder")
        self._decoder = backend.open(bundle, "synthesizer_decoder")
        self._by_symbol = {tensor.name for tensor in self._decoder.inputs if "symbols" in tensor.shape}
        self._members: tuple[Utterance, ...] = ()
        self._batch: Arrays = {}

    def start(self, ids: Sequence[int], embedding: Floats) -> "Utterance":
        """Begin an utterance of at least one id with a voice of shape [256]; raises ValueError for other shapes and
        NonFinite when the encoder fails."""
        if not ids or embedding.shape != (EMBEDDING_SIZE,):
            raise ValueError(f"needs ids and an embedding of 256 numbers, got {len(ids)} and {embedding.shape}")
        # Alone and at its own length: the blocks in which a convolution is summed depend on the number of symbols.
        feed: Arrays = {
            "ids": np.asarray([ids], np.int64),
            "lengths": np.asarray([len(ids)], np.int64),
            "embedding": embedding.astype(np.float32)[None],
        }
        given = {**self._encoder.run(feed), "lengths": feed["lengths"]}
        if not all(np.isfinite(given[name]).all() for name in _CONSTANT):
            raise NonFinite("synthesizer's encoder")
        width = -(-len(ids) // WIDTH_STEP) * WIDTH_STEP
        rows: Arrays = {}
        for tensor in self._decoder.inputs:
            whole = tensor.zeros(batch=1, symbols=width)
            if tensor.name in _CONSTANT:
                whole[tuple(slice(size) for size in given[tensor.name].shape)] = given[tensor.name]
            rows[tensor.name] = whole[0]
        return Utterance(self, rows, len(ids))

    def advance(self, utterances: Sequence["Utterance"]) -> list[Floats]:
        """One call of the decoder for utterances of any lengths: the next frames [T, 80] of each, at most eight.

        What an utterance gets does not depend, to the last bit, on which others are with it. For one thread at a time.
        """
        batch = self._gather(tuple(utterances))
        given = self._decoder.run(batch)
        mel, reached = given.pop("mel"), given.pop("reached")
        self._batch = {name: batch[name] for name in _CONSTANT}
        self._batch |= {name.removeprefix("next_"): value for name, value in given.items()}
        self._members = tuple(utterances)
        return [
            utterance.take({name: self._batch[name][row] for name in self._batch}, mel[row], reached[row])
            for row, utterance in enumerate(utterances)
        ]

    def _gather(self, utterances: tuple["Utterance", ...]) -> Arrays:
        """The batch's arrays: those of the call before when nobody joined or left, else put together row by row."""
        if utterances == self._members:
            return self._batch
        width = max(utterance.width for utterance in utterances)
        batch: Arrays = {}
        for tensor in self._decoder.inputs:
            rows = [utterance.rows[tensor.name] for utterance in utterances]
            if tensor.name not in self._by_symbol:
                batch[tensor.name] = np.stack(rows)
                continue
            batch[tensor.name] = tensor.zeros(batch=len(rows), symbols=width)
            for place, row in zip(batch[tensor.name], rows, strict=True):
                place[: min(width, len(row))] = row[:width]
        return batch


class Utterance:
    """One utterance in the making; independent of every other."""

    def __init__(self, synthesizer: Synthesizer, rows: Arrays, symbols: int) -> None:
        self._synthesizer = synthesizer
        self.rows = rows
        self.width = len(rows["weights"])
        self._symbols = symbols
        self._ceiling = step_ceiling(symbols)
        self._steps = 0
        self._emitted = 0
        self._end: int | None = None
        self._attended: Floats | None = None
        self._levels: list[float] = []
        self._unread: list[Floats] = []
        self.cut = False
        """Whether it was ended by the ceiling and not by its last symbol."""

    @property
    def finished(self) -> bool:
        """Whether every frame has been returned."""
        return self._end is not None and self._emitted >= self._end

    @property
    def symbols_left(self) -> int:
        """How many symbols the attention has not come to yet."""
        return max(0, self._symbols - 1 - int(self.rows["place"][0]))

    @property
    def levels(self) -> list[float]:
        """The mean of the bands of each frame that was returned."""
        if self._unread:
            # Put off until somebody asks, so that the first sound does not wait for it.
            self._levels.extend(np.concatenate(self._unread).mean(axis=1).tolist())
            self._unread.clear()
        return self._levels

    @property
    def symbols_done(self) -> int:
        """How many symbols the attention has left for good."""
        return self._symbols if self._end is not None else max(0, int(self.rows["place"][0]) - BEHIND)

    def attend(self, first: int, behind: int) -> list[float]:
        """How many steps' worth of attention each of a range of symbols has had, final for those that are done.

        Those of all symbols add up to the utterance's steps.
        """
        attended = self.rows["total"] if self._attended is None else self._attended
        shares: list[float] = attended[first:behind].tolist()
        return shares

    def step(self) -> Floats:
        """The next frames [T, 80], at most eight; none once finished.

        The first call returns four, because the post-net looks that far ahead.
        """
        if self.finished:
            return np.zeros((0, 80), np.float32)
        return self._synthesizer.advance([self])[0]

    def take(self, rows: Arrays, mel: Floats, reached: Floats) -> Floats:
        """Go on to the state `rows`, with what the call gave; the frames that are final by now."""
        self.rows = rows
        self._note(reached)
        available = self._steps * _FRAMES_PER_STEP - LOOK_AHEAD
        until = available if self._end is None else min(available, self._end)
        fresh = mel[FRAMES_PER_CALL - (available - self._emitted) :][: until - self._emitted]
        self._emitted = until
        self._unread.append(fresh)
        return fresh

    def _note(self, reached: Floats) -> None:
        """Count the steps of a call; the utterance ends with the first that rests on the last symbol."""
        for number, weight in enumerate(reached, start=1):
            self._steps += 1
            if self._end is None and (weight > _REACHED or self._steps >= self._ceiling):
                self._end = self._steps * _FRAMES_PER_STEP
                self.cut = not weight > _REACHED
                # What comes after, a second step of this call or another call for the look-ahead, is not heard.
                total = self.rows["total"]
                self._attended = total if number == len(reached) else total - self.rows["weights"]
