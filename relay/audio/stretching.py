"""Faster or slower speech in the same pitch, in a stream, by FFmpeg's `atempo`."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from av import AudioFrame
from av.error import EOFError as EndOfStream
from av.filter import Graph

from relay.audio.samples import SILENCE, Samples

_STEP = 240
"""Samples given to the filter at once, always as many, since its joints depend on that. It lets go of about as much as
it was given: of 10 ms less waits in it than of a whole piece."""

_FILTER_RANGE = 2.0
"""One filter joins speech without dropping any between half and double speed; beyond, several share the work."""

_TAIL_S = 0.5
"""Silence after the end, enough that the windows of all filters have passed over the last sample."""


class Stretcher:
    """Takes n samples at `rate` Hz to ceil(n / speed), however they are cut into pieces."""

    def __init__(self, rate: int, speed: float) -> None:
        self._rate, self._speed = rate, speed
        self._graph = _make_graph(rate, speed)
        self._taken = self._given = self._position = 0
        self._waiting = SILENCE

    def push(self, samples: Samples) -> Samples:
        self._taken += len(samples)
        return self._filter(samples)

    def finish(self) -> Samples:
        """The filter loses its last window; silence behind the speech is what it loses instead."""
        missing = math.ceil(Fraction(self._taken) / Fraction(self._speed)) - self._given
        return self._filter(np.zeros(int(self._rate * _TAIL_S), np.int16))[:missing]

    def _filter(self, samples: Samples) -> Samples:
        waiting, stretched = np.concatenate([self._waiting, samples]), [SILENCE]
        whole = len(waiting) // _STEP * _STEP
        for start in range(0, whole, _STEP):
            self._give(waiting[start : start + _STEP])
            stretched += self._take()
        self._waiting = waiting[whole:]
        joined = np.concatenate(stretched)
        self._given += len(joined)
        return joined

    def _give(self, samples: Samples) -> None:
        frame = AudioFrame(format="s16", layout="mono", samples=len(samples))
        frame.planes[0].update(samples.tobytes())
        frame.sample_rate, frame.time_base, frame.pts = self._rate, Fraction(1, self._rate), self._position
        self._position += len(samples)
        self._graph.push(frame)

    def _take(self) -> list[Samples]:
        taken: list[Samples] = []
        while True:
            try:
                frame = self._graph.pull()
            except (BlockingIOError, EndOfStream):
                return taken
            taken.append(frame.to_ndarray().reshape(-1).astype(np.int16))


def _make_graph(rate: int, speed: float) -> Graph:
    graph = Graph()
    graph.threads = 1
    filters = max(1, math.ceil(abs(math.log(speed)) / math.log(_FILTER_RANGE)))
    tempo = f"{speed ** (1 / filters):.9f}"
    source = graph.add_abuffer(sample_rate=rate, format="s16", layout="mono", time_base=Fraction(1, rate))
    tempos = [graph.add("atempo", tempo) for _ in range(filters)]
    graph.link_nodes(source, *tempos, graph.add("abuffersink")).configure()
    return graph
