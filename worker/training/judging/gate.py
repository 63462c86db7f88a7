"""The gate: whether a bundle may take the place of the one in service, decided on the figures of two evaluations.

A figure may be worse by half the width of the 95 % interval that the evaluation of the bundle in service gives it:
less than that, another choice of sentences would have done as well. A rate that was zero has no width; then it is three
events in as many trials (the rule of three; Hanley and Lippman-Hand, 1983). A figure that reaches its aim is not
compared: there, what is gained elsewhere counts for more. Times depend on the machine and on what else it does, so they
have only to keep their absolute limit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.training.judging.report import LABELS, MAIN, format_figure


@dataclass(frozen=True, slots=True)
class Rule:
    """What is asked of a figure: whether more is better, the absolute limit, whether it is compared with the bundle in
    service, and the aim beyond which it is not."""

    figure: str
    more_is_better: bool
    must: float | None = None
    compared: bool = True
    aim: float | None = None

    def keeps(self, value: float) -> bool:
        """Whether the absolute limit is kept."""
        return self.must is None or (value >= self.must if self.more_is_better else value <= self.must)

    def is_worse(self, value: float, before: float, tolerance: float) -> bool:
        """Whether a value falls behind another by more than the tolerance, short of the aim."""
        return not self.reaches_aim(value) and self.loss(value, before) > tolerance

    def reaches_aim(self, value: float) -> bool:
        """Whether a value is as good as anybody asks for."""
        return self.aim is not None and (value >= self.aim if self.more_is_better else value <= self.aim)

    def loss(self, value: float, before: float) -> float:
        """How much worse a value is than another; negative when it is better."""
        return before - value if self.more_is_better else value - before


RULES = (
    Rule("likeness", True, 0.70, aim=0.80),
    Rule("equal_error_rate", False, 0.12, aim=0.05),
    Rule("word_error_rate", False, 0.06, aim=0.02),
    Rule("distillmos", True, 3.2, aim=4.0),
    Rule("dnsmos", True),
    Rule("share_lost_or_repeated", False, 0.02),
    Rule("share_of_extremes_lost_or_repeated", False, 0.0, compared=False),
    Rule("real_time_factor", False, 0.12, compared=False),
    Rule("vocoder_16k_cost", False, 0.5, compared=False),
    Rule("word_error_rate_16k", False, aim=0.02),
    Rule("likeness_16k", True, aim=0.80),
    Rule("distillmos_16k", True, aim=4.0),
)

_OF_WORDS = "word_error_rate"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure at the gate: the candidate's, the one in service, the tolerance, and what is wrong with it."""

    rule: Rule
    value: float | None
    before: float | None = None
    tolerance: float | None = None
    fault: str | None = None


def weigh(candidate: Mapping[str, Any], service: Mapping[str, Any] | None) -> list[Line]:
    """Every rule applied to the evaluation of a candidate and that of the bundle in service, if there is one."""
    return [_weigh_figure(rule, candidate, service) for rule in RULES]


def _weigh_figure(rule: Rule, candidate: Mapping[str, Any], service: Mapping[str, Any] | None) -> Line:
    value = _read(candidate, rule.figure)
    if value is None:
        return Line(rule, None, fault="is missing")
    before = _read(service, rule.figure) if service and rule.compared else None
    tolerance = find_tolerance(rule.figure, service) if service and before is not None else None
    if not rule.keeps(value):
        sign = "least" if rule.more_is_better else "most"
        fault = f"must be at {sign} {format_figure(rule.figure, rule.must or 0.0)}"
        return Line(rule, value, before, tolerance, fault)
    if before is not None and tolerance is not None and rule.is_worse(value, before, tolerance):
        worse = format_figure(rule.figure, rule.loss(value, before))
        return Line(rule, value, before, tolerance, f"is worse by {worse}")
    return Line(rule, value, before, tolerance)


def _read(evaluation: Mapping[str, Any], figure: str) -> float | None:
    value = evaluation["figures"].get(figure)
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def find_tolerance(figure: str, service: Mapping[str, Any]) -> float:
    """By how much a figure may be worse than in this evaluation."""
    low, high = service["intervals"].get(figure, (0.0, 0.0))
    return float((high - low) / 2 if high > low else 3 / _count_trials(figure, service))


def _count_trials(figure: str, service: Mapping[str, Any]) -> int:
    own = [one for one in service["sentences"] if one["system"] == MAIN]
    return max(1, sum(int(one["words"]) for one in own) if figure.startswith(_OF_WORDS) else len(own))


def tabulate(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Rows of figure, candidate, in service, tolerance, must, verdict."""
    rows: list[tuple[str, ...]] = [("figure", "candidate", "in service", "tolerance", "must", "verdict")]
    for line in lines:
        figure = line.rule.figure
        values = (line.value, line.before, line.tolerance, line.rule.must)
        cells = ("–" if value is None else format_figure(figure, value) for value in values)
        rows.append((_label(figure), *cells, line.fault or "passes"))
    return rows


def _label(figure: str) -> str:
    plain = figure.removesuffix("_16k")
    return LABELS.get(figure) or f"{LABELS.get(plain, plain)}, 16 kHz"
