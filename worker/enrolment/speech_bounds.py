"""The stretches of speech in a recording, cut out and joined: from probabilities of speech, 32 ms each.

Speech begins where speech is likely and ends where it has become unlikely; a gap shorter than a stop consonant with its
surroundings belongs to it, and what is shorter than a syllable is none. Longer pauses are shortened, since the encoder
listens to whatever it gets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.enrolment.voice_activity import CHUNK, Probabilities

MARGIN = SAMPLE_RATE * 3 // 20
"""Samples (150 ms) that stay before and after speech."""

LONGEST_PAUSE = SAMPLE_RATE * 6 // 10
"""Samples (600 ms) that a pause may have; a longer one is shortened to it."""

_BEGINS = 0.5
_ENDS = 0.35
_SHORTEST_GAP = SAMPLE_RATE // 5
_SHORTEST_SPEECH = SAMPLE_RATE // 10
_FADE = SAMPLE_RATE // 200


@dataclass(frozen=True, slots=True)
class Span:
    """Samples from `start` up to `end`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def find_speech(probabilities: Probabilities) -> list[Span]:
    """The stretches of speech, in order."""
    speaks, speaking = np.zeros(len(probabilities) + 2, np.bool_), False
    for number, probability in enumerate(probabilities, 1):
        speaking = bool(probability >= (_ENDS if speaking else _BEGINS))
        speaks[number] = speaking
    edges = np.flatnonzero(speaks[1:] != speaks[:-1]).reshape(-1, 2) * CHUNK
    spans = merge_spans([Span(int(start), int(end)) for start, end in edges], _SHORTEST_GAP)
    return [span for span in spans if span.length >= _SHORTEST_SPEECH]


def merge_spans(spans: list[Span], gap: int) -> list[Span]:
    """Spans with fewer than `gap` samples between them become one."""
    merged: list[Span] = []
    for span in spans:
        near = bool(merged) and span.start - merged[-1].end < gap
        merged.append(Span(merged.pop().start, span.end) if near else span)
    return merged


def join_speech(samples: Samples, spans: list[Span]) -> Samples:
    """The spans in order, with `MARGIN` at both ends and pauses up to `LONGEST_PAUSE`, faded into each other."""
    spans = merge_spans(spans, LONGEST_PAUSE)
    half = LONGEST_PAUSE // 2
    last = len(spans) - 1
    joined = np.zeros(0, np.float32)
    for number, span in enumerate(spans):
        start = max(span.start - (MARGIN if number == 0 else half), 0)
        end = min(span.end + (MARGIN if number == last else half), len(samples))
        joined = _fade_into(joined, samples[start:end])
    return joined


def cut_speech(samples: Samples, spans: list[Span]) -> Samples:
    """The spans alone, 32 ms of surroundings each, without any pause: a voice to be listened to by a machine."""
    cut = np.zeros(0, np.float32)
    for span in spans:
        cut = _fade_into(cut, samples[max(span.start - CHUNK, 0) : span.end + CHUNK])
    return cut


def _fade_into(before: Samples, after: Samples) -> Samples:
    """One after the other, overlapped by 5 ms, so that two noise floors meet without a click."""
    width = min(_FADE, len(before), len(after))
    if not width:
        return np.concatenate((before, after)).astype(np.float32)
    rise = (np.arange(width, dtype=np.float32) + 0.5) / np.float32(width)
    middle = before[-width:] * (1 - rise) + after[:width] * rise
    return np.concatenate((before[:-width], middle, after[width:])).astype(np.float32)
