"""When the words of a sentence are spoken, from the attention of the synthesizer.

The network was taught with alignments that share the 40 ms of a decoder step among the symbols that fall into it. So
the attention that symbols have had by the time it has left them, added up over the steps, is the time at which the last
of them ends, and finer than a step. Two things are put right: the sound comes before the attention by an even lag,
which the network has from its teacher's durations, and words are trimmed to where frames sound, because symbols share
the silence of a pause. See docs/timings.md for how it was measured.

It is plain arithmetic on few numbers, because numpy's calls cost more between two runs of the models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from storage.streams.wire import Timing
from worker.sv2tts.mel import HOP_LENGTH, SAMPLE_RATE
from worker.sv2tts.synthesizer import STEP_MS, Utterance
from worker.text.reading import Span

LAG_MS = 50
"""By how much the sound of a symbol comes before the attention on it."""

QUIET_DROP = 4.5
"""Nepers below the loudest frame so far at which a frame counts as silent."""

_FRAME_MS = 1000 * HOP_LENGTH // SAMPLE_RATE


class WordClock:
    """Tells the words of one sentence, each once, as soon as their end is known and was heard."""

    def __init__(self, utterance: Utterance, words: Iterable[Span]) -> None:
        self._utterance = utterance
        self._waiting = deque(words)
        self._known: deque[Timing] = deque()
        self._symbols, self._steps = 0, 0.0
        self._frames, self._loudest = 0, float("-inf")

    def tell(self, samples: int, last: bool = False) -> tuple[Timing, ...]:
        """The words that end within the first `samples` of the sentence and were not told before; with `last` all that
        are left. What is told of a word does not depend on when it is asked for."""
        done = self._utterance.symbols_done
        while self._waiting and (last or self._waiting[0].last < done):
            self._known.append(self._time(self._waiting.popleft()))
        heard_ms = samples * 1000 // SAMPLE_RATE
        told = []
        while self._known and (last or self._known[0].end_ms <= heard_ms):
            told.append(self._known.popleft())
        return tuple(told)

    def _time(self, span: Span) -> Timing:
        start_ms, end_ms = self._end_symbols(span.first), self._end_symbols(span.last + 1)
        # A frame stands for the ten milliseconds from its own time on.
        first, behind = start_ms // _FRAME_MS, -(-end_ms // _FRAME_MS)
        levels = self._utterance.levels
        quiet = self._find_loudest(levels, behind) - QUIET_DROP
        sounding = [place for place in range(first, behind) if levels[place] > quiet]
        if sounding:
            start_ms = max(start_ms, _FRAME_MS * sounding[0])
            end_ms = min(end_ms, _FRAME_MS * (sounding[-1] + 1))
        return Timing(span.word, start_ms, end_ms)

    def _end_symbols(self, count: int) -> int:
        """The millisecond at which the first `count` symbols end."""
        self._steps += sum(self._utterance.attend(self._symbols, count))
        self._symbols = count
        return max(0, round(STEP_MS * self._steps) - LAG_MS)

    def _find_loudest(self, levels: list[float], behind: int) -> float:
        """The level of the loudest of the first frames."""
        self._loudest = max([self._loudest, *levels[self._frames : behind]])
        self._frames = behind
        return self._loudest
