"""The synthesizer in service: phoneme ids and a speaker embedding become log-mel frames, 80 ms a call.

The network is a Tacotron 2 (Shen et al., 2018) conditioned on a GE2E embedding (Jia et al., 2018) whose attention is
windowed and monotonic: it reaches the last symbol of every utterance and cannot go back, so no words are lost,
repeated or invented after the end.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import Floats

FRAMES_PER_CALL = 8
STEPS_PER_CALL = 2
LOOK_AHEAD = 4
"""Frames by which the post-net inside the decoder graph lags behind the decoder."""

_FRAMES_PER_STEP = FRAMES_PER_CALL // STEPS_PER_CALL
_REACHED = 0.5
_TYPES: Mapping[str, type[np.generic]] = {"tensor(float)": np.float32, "tensor(int64)": np.int64}

State = dict[str, NDArray[np.generic]]


def step_ceiling(symbols: int) -> int:
    """The most decoder steps (40 ms each) an utterance of so many ids can take; the graph enforces the same number."""
    return 12 + 4 * symbols


class Synthesizer:
    """The synthesizer's graphs of a bundle; one instance serves any number of utterances and threads."""

    def __init__(self, bundle: Bundle, threads: int = 1) -> None:
        self._encoder = bundle.session("synthesizer_encoder", threads)
        self._decoder = bundle.session("synthesizer_decoder", threads)
        self._outputs = [output.name for output in self._decoder.get_outputs()]

    def start(self, ids: Sequence[int], embedding: Floats) -> "Utterance":
        """Begin an utterance of at least one id with a voice of shape [256]; raises ValueError for other shapes."""
        if not ids or embedding.shape != (256,):
            raise ValueError(f"needs ids and an embedding of 256 numbers, got {len(ids)} and {embedding.shape}")
        feed: State = {
            "ids": np.asarray([ids], np.int64),
            "lengths": np.asarray([len(ids)], np.int64),
            "embedding": embedding.astype(np.float32)[None],
        }
        memory, keys, speaker = self._encoder.run(["memory", "keys", "speaker"], feed)
        state: State = {"memory": memory, "keys": keys, "speaker": speaker, "lengths": feed["lengths"]}
        for tensor in self._decoder.get_inputs():
            if tensor.name not in state:
                state[tensor.name] = _zeros(tensor, len(ids))
        return Utterance(self, state)

    def advance(self, state: State) -> tuple[Floats, Floats]:
        """One call of the decoder, which changes `state`: frames [B, 8, 80] and the attention's weight on the last
        symbol at each step [B, 2]."""
        mel, reached, *rest = self._decoder.run(self._outputs, state)
        state.update(zip((name.removeprefix("next_") for name in self._outputs[2:]), rest, strict=True))
        return mel, reached


def _zeros(tensor: onnxruntime.NodeArg, symbols: int) -> NDArray[np.generic]:
    sizes = {"batch": 1, "symbols": symbols}
    return np.zeros([sizes.get(size, size) for size in tensor.shape], _TYPES[tensor.type])


class Utterance:
    """One utterance in the making; independent of every other."""

    def __init__(self, synthesizer: Synthesizer, state: State) -> None:
        self._synthesizer = synthesizer
        self._state = state
        self._ceiling = step_ceiling(int(state["lengths"][0]))
        self._steps = 0
        self._emitted = 0
        self._end: int | None = None

    @property
    def finished(self) -> bool:
        """Whether every frame has been returned."""
        return self._end is not None and self._emitted >= self._end

    def step(self) -> Floats:
        """The next frames [T, 80], at most eight; none once finished.

        The first call returns four, because the post-net looks that far ahead.
        """
        if self.finished:
            return np.zeros((0, 80), np.float32)
        mel, reached = self._synthesizer.advance(self._state)
        self._note(reached[0])
        available = self._steps * _FRAMES_PER_STEP - LOOK_AHEAD
        until = available if self._end is None else min(available, self._end)
        fresh = mel[0, FRAMES_PER_CALL - (available - self._emitted) :][: until - self._emitted]
        self._emitted = until
        return fresh

    def _note(self, reached: Floats) -> None:
        """Count the steps of a call; the utterance ends with the first that rests on the last symbol."""
        for weight in reached:
            self._steps += 1
            if self._end is None and (weight > _REACHED or self._steps >= self._ceiling):
                self._end = self._steps * _FRAMES_PER_STEP
