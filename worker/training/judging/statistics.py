"""Equal error rates, and how far a figure may be from what more sentences would give."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

DRAWS = 1000
_SEED = 3
_SURE = (0.025, 0.975)

Item = TypeVar("Item")


def equal_error_rate(genuine: Sequence[float], impostor: Sequence[float]) -> float:
    """The rate at which as many genuine scores fall below a threshold as impostor scores reach it.

    Thresholds are the scores; between two of them the rates are joined by straight lines. Raises ValueError when there
    are no scores on one side.
    """
    if not len(genuine) or not len(impostor):
        raise ValueError("an equal error rate needs genuine and impostor scores")
    own, others = np.sort(np.asarray(genuine, np.float64)), np.sort(np.asarray(impostor, np.float64))
    thresholds = np.unique(np.concatenate([own, others]))
    missed = np.append(np.searchsorted(own, thresholds) / len(own), 1.0)
    taken = np.append(1 - np.searchsorted(others, thresholds) / len(others), 0.0)
    after = int(np.argmax(missed >= taken))
    if after == 0 or missed[after] == taken[after]:
        return float((missed[after] + taken[after]) / 2)
    before, gap = after - 1, missed - taken
    weight = -gap[before] / (gap[after] - gap[before])
    return float(missed[before] + weight * (missed[after] - missed[before]))


def bootstrap(
    groups: Sequence[Sequence[Item]], figure: Callable[[Sequence[Item]], float | None], draws: int = DRAWS
) -> tuple[float, float] | None:
    """The 95 % interval of a figure over redrawn sentences (Efron's percentile interval), or None when it has none.

    Sentences are redrawn within each group (a speaker), so that it speaks for these people and other sentences. The
    same input gives the same interval.
    """
    rng = np.random.default_rng(_SEED)
    values = []
    for _ in range(draws):
        drawn = [group[place] for group in groups for place in rng.integers(len(group), size=len(group))]
        value = figure(drawn)
        if value is None:
            return None
        values.append(value)
    low, high = np.quantile(values, _SURE)
    return float(low), float(high)
