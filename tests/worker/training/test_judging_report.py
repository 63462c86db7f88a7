"""worker.training.judging.figures and report: what judgements add up to, and how one reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from worker.training.judging.figures import compute, median_cost, summarize
from worker.training.judging.hearing import Judgement
from worker.training.judging.report import Evaluation, to_json, to_markdown

ONE = Judgement(
    system="vocoder",
    speaker="s1",
    kind="plain",
    text="four plain words here",
    lapses=[],
    heard="four plain words here",
    words=4,
    errors=0,
    likeness=0.8,
    impostors=[0.5, 0.6],
    distillmos=3.5,
    dnsmos=3.0,
    seconds=2.0,
    active_seconds=1.5,
    model_seconds=1.0,
    stages={"text": 0.001, "synthesizer": 0.04, "vocoder": 0.06},
    first_audio=[0.01, 0.03],
)


def _spoken() -> list[Judgement]:
    """Two speakers, three sentences each, one of them of one word, one lapse in all."""
    bad = replace(ONE, heard="four words | here", errors=1, lapses=["lost"], text="four plain | words here")
    word = replace(ONE, kind="one word", text="Yes.", words=1, distillmos=1.0, dnsmos=1.0, likeness=0.1)
    return [replace(one, speaker=speaker) for speaker in ("s1", "s2") for one in (ONE, word, bad)]


def _evaluation(judgements: Sequence[Judgement]) -> Evaluation:
    systems = dict.fromkeys(one.system for one in judgements)
    columns = {system: summarize([one for one in judgements if one.system == system]) for system in systems}
    material = {"speakers": ["s1", "s2"], "sentences": 3, "recogniser": "whisper (ab)"}
    bundle = {"name": "base", "version": "7"}
    return Evaluation(bundle, {"vocoder.onnx": "ab"}, material, ["DNSMOS (why)"], {}, columns, judgements)


def test_figures_are_sums_over_words_and_means_over_sentences() -> None:
    """Errors over words, lapses over sentences, times over seconds of speech; a lone word is judged by its words
    alone."""
    figures = compute(_spoken())
    assert figures["word_error_rate"] == pytest.approx(2 / 18)
    assert figures["share_lost_or_repeated"] == pytest.approx(2 / 6)
    assert figures["share_of_extremes_lost_or_repeated"] == 0.0
    assert figures["likeness"] == pytest.approx(0.8)
    assert figures["distillmos"] == pytest.approx(3.5)
    assert figures["equal_error_rate"] == 0.0
    assert figures["duration_ratio"] == pytest.approx(1.5)
    assert figures["real_time_factor"] == pytest.approx(0.05)
    assert figures["first_audio_ms"] == pytest.approx(20.0)


def test_what_was_not_judged_has_no_figure() -> None:
    """Without a recogniser there are no word figures, without DistillMOS no opinion; the rest stays."""
    figures = compute([replace(one, heard=None, distillmos=None) for one in _spoken()])
    assert {"word_error_rate", "share_lost_or_repeated", "distillmos"}.isdisjoint(figures)
    assert {"likeness", "dnsmos"} <= figures.keys()


def test_transcripts_have_figures_of_their_own() -> None:
    """A person's own words, spoken anew, tell about length and count nowhere else."""
    again = replace(ONE, kind="transcript", errors=4, active_seconds=2.0, model_seconds=4.0)
    column = summarize([*_spoken(), again])
    assert column.figures["word_error_rate"] == pytest.approx(2 / 18)
    assert column.figures["duration_ratio_to_recording"] == pytest.approx(0.5)
    assert column.figures["word_error_rate_of_transcripts"] == 1.0
    assert column.sentences == 6
    assert set(column.speakers) == {"s1", "s2"}


def test_one_slow_moment_does_not_change_the_cost_of_a_vocoder() -> None:
    """The cost of the cheap vocoder is the median over what both spoke."""
    texts = [str(n) for n in range(5)]
    other = [replace(ONE, text=text) for text in texts]
    cheap = [replace(ONE, text=text, stages={"vocoder": 0.024 if text else 0.0}) for text in texts]
    cheap[2] = replace(cheap[2], stages={"vocoder": 5.0})
    assert median_cost(cheap, other) == pytest.approx(0.4)
    assert median_cost([], other) is None


def test_the_flat_figures_name_the_cheap_vocoder_apart() -> None:
    """Figures of `vocoder_16k` end in `_16k`; those of real people and intervals stand beside."""
    judgements = [*_spoken(), *(replace(one, system="vocoder_16k", likeness=0.7) for one in _spoken())]
    judgements += [replace(ONE, system="real", kind="recording", likeness=0.9)]
    report = to_json(_evaluation(judgements))
    assert report["figures"]["likeness_16k"] == 0.7
    assert report["figures"]["likeness_of_real_recordings"] == 0.9
    assert report["figures"]["vocoder_16k_cost"] == 1.0
    low, high = report["intervals"]["word_error_rate"]
    assert low <= report["figures"]["word_error_rate"] <= high
    assert len(report["sentences"]) == len(judgements)
    json.dumps(report, allow_nan=False)


def test_the_page_has_a_row_a_figure_and_a_column_a_system() -> None:
    """Every table is whole whatever was heard, and the worst sentences come with what was heard."""
    text = to_markdown(_evaluation([*_spoken(), replace(ONE, system="hibari", speaker="hibari", likeness=None)]))
    assert "| figure | vocoder | hibari |" in text
    assert "| word error rate | 11.1 % (" in text
    assert "Left out: DNSMOS (why)." in text
    assert "| vocoder | s1 | 1/4 | lost | four plain / words here | four words / here |" in text
    for table in (block.splitlines() for block in text.split("\n\n") if block.startswith("|")):
        assert len({line.count("|") for line in table}) == 1
