"""The figures of a table, each made of the judgements of one system."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from worker.training.judging.hearing import Judgement, Kind
from worker.training.judging.statistics import bootstrap, equal_error_rate

Heard = Sequence[Judgement]
Computation = Callable[[Heard], float | None]

EXTREMES = frozenset({Kind.LETTER, Kind.WORD, Kind.PARAGRAPH})
"""Texts of one letter, one word and sixty words."""

BRIEF = frozenset({Kind.LETTER, Kind.WORD})
"""Half a second of sound, which is judged by its words alone: the encoder takes 1.6 s at a time, DistillMOS 7.7 s and
DNSMOS 9 s, so of such a text they would judge the padding."""


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _long(heard: Heard) -> Heard:
    """Those that are not brief, unless all are."""
    return [one for one in heard if one.kind not in BRIEF] or heard


def word_error_rate(heard: Heard) -> float | None:
    """Substituted, inserted and lost words over words asked for."""
    if any(one.heard is None for one in heard):
        return None
    return _ratio(sum(one.errors for one in heard), sum(one.words for one in heard))


def share_lost_or_repeated(heard: Heard) -> float | None:
    """The share of sentences with a lapse; see :mod:`worker.training.judging.lapses`."""
    return None if any(one.heard is None for one in heard) else _mean([float(bool(one.lapses)) for one in heard])


def verification_error_rate(heard: Heard) -> float | None:
    """Equal error rate when each sentence claims to be its speaker's and everybody else's."""
    own = [one.likeness for one in _long(heard) if one.likeness is not None]
    others = [score for one in _long(heard) for score in one.impostors]
    return equal_error_rate(own, others) if own and others else None


def stage_factor(*stages: str) -> Computation:
    """Processor seconds in some stages a second of speech."""

    def compute(heard: Heard) -> float | None:
        if not all(stage in one.stages for one in heard for stage in stages):
            return None
        return _ratio(sum(one.stages[stage] for one in heard for stage in stages), sum(one.seconds for one in heard))

    return compute


def first_audio(quantile: float) -> Computation:
    """Processor milliseconds from a piece's text to its first samples."""

    def compute(heard: Heard) -> float | None:
        times = [first for one in heard for first in one.first_audio]
        return 1000 * float(np.quantile(times, quantile)) if times else None

    return compute


COMPUTATIONS: dict[str, Computation] = {
    "word_error_rate": word_error_rate,
    "share_lost_or_repeated": share_lost_or_repeated,
    "share_of_extremes_lost_or_repeated": lambda heard: share_lost_or_repeated(
        [one for one in heard if one.kind in EXTREMES]
    ),
    "likeness": lambda heard: _mean([one.likeness for one in _long(heard)]),
    "impostor_likeness": lambda heard: _mean([score for one in _long(heard) for score in one.impostors]),
    "equal_error_rate": verification_error_rate,
    "distillmos": lambda heard: _mean([one.distillmos for one in _long(heard)]),
    "dnsmos": lambda heard: _mean([one.dnsmos for one in _long(heard)]),
    "duration_ratio": lambda heard: _ratio(
        sum(one.active_seconds for one in heard), sum(one.model_seconds for one in heard)
    ),
    "real_time_factor": stage_factor("synthesizer", "vocoder"),
    "real_time_factor_text": stage_factor("text"),
    "real_time_factor_synthesizer": stage_factor("synthesizer"),
    "real_time_factor_vocoder": stage_factor("vocoder"),
    "real_time_factor_teacher": stage_factor("teacher"),
    "first_audio_ms": first_audio(0.5),
    "first_audio_ms_p95": first_audio(0.95),
}
SURE_OF = (
    *("word_error_rate", "share_lost_or_repeated", "likeness", "equal_error_rate", "distillmos", "dnsmos"),
    *("duration_ratio", "real_time_factor"),
)
"""The figures that get an interval."""


@dataclass(frozen=True, slots=True)
class Column:
    """The figures of one system, 95 % intervals of some, the same for each speaker, and the word error rates, likeness
    and opinions by kind of text."""

    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    speakers: dict[str, dict[str, float]]
    kinds: dict[str, dict[str, float]]
    sentences: int


def compute(heard: Heard) -> dict[str, float]:
    """Every figure that these judgements give."""
    values = {name: computation(heard) for name, computation in COMPUTATIONS.items()} if heard else {}
    return {name: value for name, value in values.items() if value is not None}


def summarize(heard: Heard) -> Column:
    """The column of one system. Transcripts that were spoken anew have figures of their own: they are nobody's idea of
    a text for a service, but show the length that people give the same words."""
    spoken = [one for one in heard if one.kind != Kind.TRANSCRIPT]
    again = [one for one in heard if one.kind == Kind.TRANSCRIPT]
    figures = compute(spoken)
    if again:
        anew = compute(again)
        kept = {"duration_ratio": "duration_ratio_to_recording", "word_error_rate": "word_error_rate_of_transcripts"}
        figures |= {to: anew[name] for name, to in kept.items() if name in anew}
    by_speaker, by_kind = _group(spoken, "speaker"), _group(heard, "kind")
    intervals = {name: bootstrap(list(by_speaker.values()), COMPUTATIONS[name]) for name in SURE_OF if name in figures}
    return Column(
        figures,
        {name: interval for name, interval in intervals.items() if interval is not None},
        {name: compute(group) for name, group in by_speaker.items()},
        {name: compute(group) for name, group in by_kind.items()},
        len(spoken),
    )


def median_cost(cheap: Heard, other: Heard) -> float | None:
    """What the stage `vocoder` of one system costs over that of another: the median over the texts that both spoke,
    which a machine that is busy now and then does not move."""
    spent = {(one.speaker, one.text): one.stages.get("vocoder") for one in other}
    pairs = [(one.stages.get("vocoder"), spent.get((one.speaker, one.text))) for one in cheap]
    ratios = [less / more for less, more in pairs if less and more]
    return float(np.median(ratios)) if ratios else None


def _group(heard: Heard, key: str) -> dict[str, list[Judgement]]:
    groups: dict[str, list[Judgement]] = {}
    for one in heard:
        groups.setdefault(getattr(one, key), []).append(one)
    return groups
