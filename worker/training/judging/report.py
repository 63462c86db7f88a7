"""The report of an evaluation: JSON for machines and the gate, Markdown for people. Neither holds sound."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from worker.training.judging.figures import Column, median_cost
from worker.training.judging.hearing import Judgement, Kind

FORMAT = 1
MAIN, CHEAP = "vocoder", "vocoder_16k"
CHEAP_ENDING = "_16k"
_DIGITS = 4
_WORST = 12
_NOTHING = "–"
_BRIEF = (
    *("system", "speaker", "kind", "text", "heard", "words", "errors", "lapses"),
    *("likeness", "distillmos", "dnsmos", "seconds"),
)

LABELS: Mapping[str, str] = {
    "word_error_rate": "word error rate",
    "share_lost_or_repeated": "sentences with something lost, repeated or babbled",
    "share_of_extremes_lost_or_repeated": "the same of one letter, one word, sixty words",
    "likeness": "likeness to the reference (cosine)",
    "impostor_likeness": "likeness to other people's references",
    "likeness_of_real_recordings": "likeness of their real recordings",
    "equal_error_rate": "verification equal error rate",
    "distillmos": "DistillMOS",
    "dnsmos": "DNSMOS P.835, overall",
    "duration_ratio": "length over the teacher's (copies: over the recording's)",
    "duration_ratio_to_recording": "length of transcripts over the recordings'",
    "word_error_rate_of_transcripts": "word error rate of transcripts",
    "real_time_factor": "real-time factor, synthesizer and vocoder",
    "real_time_factor_encoder": "real-time factor, encoder",
    "real_time_factor_text": "real-time factor, text",
    "real_time_factor_synthesizer": "real-time factor, synthesizer",
    "real_time_factor_vocoder": "real-time factor, vocoder",
    "real_time_factor_teacher": "real-time factor, teacher",
    "first_audio_ms": "first audio of a piece, ms, median",
    "first_audio_ms_p95": "first audio of a piece, ms, 95th percentile",
    "vocoder_16k_cost": "cost of the 16 kHz vocoder over the other's",
}
_PERCENT = frozenset(name for name in LABELS if name.startswith(("word_error", "share", "equal_error")))
_SPEAKER_FIGURES = ("word_error_rate", "share_lost_or_repeated", "likeness", "equal_error_rate", "distillmos", "dnsmos")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was judged (`bundle` names it, `graphs` holds the checksums of its files), on which `material`, what is
    `missing` and why, the columns by system, and the judgements."""

    bundle: Mapping[str, str]
    graphs: Mapping[str, str]
    material: Mapping[str, Any]
    missing: Sequence[str]
    extra: Mapping[str, float]
    columns: Mapping[str, Column]
    judgements: Sequence[Judgement]


def flat_figures(evaluation: Evaluation) -> dict[str, float]:
    """The figures of the bundle: those of its main vocoder, those of the cheap one with `_16k` behind the name."""
    columns = evaluation.columns
    figures = dict(columns[MAIN].figures if MAIN in columns else next(iter(columns.values())).figures)
    figures |= evaluation.extra
    if "real" in columns and "likeness" in columns["real"].figures:
        figures["likeness_of_real_recordings"] = columns["real"].figures["likeness"]
    if MAIN in columns and CHEAP in columns:
        cheap = columns[CHEAP].figures
        figures |= {f"{name}{CHEAP_ENDING}": value for name, value in cheap.items()}
        cost = median_cost(*([one for one in evaluation.judgements if one.system == name] for name in (CHEAP, MAIN)))
        figures |= {"vocoder_16k_cost": cost} if cost is not None else {}
    return {name: round(value, _DIGITS) for name, value in figures.items()}


def flat_intervals(evaluation: Evaluation) -> dict[str, list[float]]:
    """The 95 % intervals of some of the figures, by the same names."""
    intervals: dict[str, list[float]] = {}
    for name, ending in ((MAIN, ""), (CHEAP, CHEAP_ENDING)):
        if name in evaluation.columns:
            found = evaluation.columns[name].intervals.items()
            intervals |= {f"{figure}{ending}": [round(end, _DIGITS) for end in ends] for figure, ends in found}
    return intervals


def to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The whole report as plain values."""
    return {
        "format": FORMAT,
        "bundle": dict(evaluation.bundle),
        "graphs": dict(evaluation.graphs),
        "material": dict(evaluation.material),
        "missing": list(evaluation.missing),
        "figures": flat_figures(evaluation),
        "intervals": flat_intervals(evaluation),
        "systems": {name: _rounded(asdict(column)) for name, column in evaluation.columns.items()},
        "sentences": [_brief(one) for one in evaluation.judgements],
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _brief(one: Judgement) -> dict[str, Any]:
    return {name: _rounded(getattr(one, name)) for name in _BRIEF}


def format_figure(name: str, value: float) -> str:
    """A figure as people read it."""
    plain = name.removesuffix(CHEAP_ENDING)
    if plain in _PERCENT:
        return f"{100 * value:.1f} %"
    return f"{value:.1f}" if plain.startswith("first_audio") else f"{value:.3f}"


def to_markdown(evaluation: Evaluation) -> str:
    """The report as tables."""
    parts = [
        [f"# Evaluation of the voice {evaluation.bundle['name']}, version {evaluation.bundle['version']}", ""],
        _introduce(evaluation),
        ["## Figures", "", *_figure_table(evaluation), ""],
        ["## By speaker", "", *_group_table(evaluation.columns, "speakers", "speaker"), ""],
        ["## By kind of text", "", *_group_table(evaluation.columns, "kinds", "kind"), ""],
        ["## The worst sentences", "", *_worst_table(evaluation.judgements), ""],
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _introduce(evaluation: Evaluation) -> list[str]:
    material = evaluation.material
    lines = [
        f"{len(material['speakers'])} speakers that the models never heard ({', '.join(material['speakers'])}), "
        f"{material['sentences']} sentences each, one reference of 5 to 10 s; recogniser: {material['recogniser']}. "
        "In brackets the 95 % interval over sentences (bootstrap). Times are processor seconds of one thread a second "
        "of speech. Each column is one speaker of the text: the bundle with one of its vocoders, people's real "
        "recordings, copies of these through a vocoder, and the teachers in their own voices. Texts of one letter or "
        "one word are judged by their words alone: half a second is too short for the other judges.",
        "",
    ]
    return lines + [line for missing in evaluation.missing for line in (f"Left out: {missing}.", "")]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _figure_table(evaluation: Evaluation) -> list[str]:
    columns, flat = evaluation.columns, flat_figures(evaluation)
    rows = []
    for name, label in LABELS.items():
        cells = [_cell(column, name) for column in columns.values()]
        if name in flat and not any(name in column.figures for column in columns.values()):
            cells[0] = format_figure(name, flat[name])
        rows.append([label, *cells])
    counts = ["utterances", *(str(column.sentences) for column in columns.values())]
    return _table(["figure", *columns], [counts, *(row for row in rows if set(row[1:]) != {_NOTHING})])


def _cell(column: Column, name: str) -> str:
    """A figure with its interval."""
    if name not in column.figures:
        return _NOTHING
    text = format_figure(name, column.figures[name])
    if name not in column.intervals:
        return text
    low, high = (format_figure(name, end) for end in column.intervals[name])
    return f"{text} ({low.removesuffix(' %')} to {high})"


def _group_table(columns: Mapping[str, Column], field: str, title: str) -> list[str]:
    rows = []
    for system, column in columns.items():
        for name, figures in getattr(column, field).items():
            cells = [format_figure(key, figures[key]) if key in figures else _NOTHING for key in _SPEAKER_FIGURES]
            rows.append([system, name, *cells])
    return _table(["system", title, *(LABELS[key] for key in _SPEAKER_FIGURES)], rows)


def _worst_table(judgements: Sequence[Judgement]) -> list[str]:
    own = [one for one in judgements if one.system in (MAIN, CHEAP) and one.kind != Kind.TRANSCRIPT]
    bad = sorted((one for one in own if one.errors or one.lapses), key=lambda one: (-len(one.lapses), -one.errors))
    if not bad:
        return ["Every word was understood." if any(one.heard for one in own) else "Nothing was written down."]
    rows = [
        [
            one.system,
            one.speaker,
            f"{one.errors}/{one.words}",
            ", ".join(one.lapses) or _NOTHING,
            one.text,
            one.heard or _NOTHING,
        ]
        for one in bad[:_WORST]
    ]
    return _table(["system", "speaker", "errors", "lapses", "said", "heard"], rows)
