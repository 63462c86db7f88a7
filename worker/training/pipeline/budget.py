"""How the time of a run is divided over its stages, and how much speech a time is worth."""

from collections.abc import Mapping

from worker.training.pipeline.stages import Cost, Stage

PACE: Mapping[Stage, float] = {Stage.RENDER: 30.0, Stage.KOKORO: 1.1, Stage.FRAMES: 25.0, Stage.DISTIL: 40.0}
"""Seconds of speech that one core makes in a second."""

MOST_SPEECH_S: Mapping[Stage, float] = {
    Stage.RENDER: 10 * 3600.0,
    Stage.KOKORO: 12 * 3600.0,
    Stage.FRAMES: 4 * 3600.0,
    Stage.DISTIL: 1.5 * 3600.0,
}
LEAST_SPEECH_S = 90.0
PATIENCE = 2.0
GRACE_S = 120.0


def split_seconds(left: float, costs: Mapping[Stage, Cost], jobs: int) -> dict[Stage, float]:
    """Seconds of each stage: its share of what is left, and of what others leave that can use no more.

    `costs` holds the stages that are still to run; their shares need not sum to one.
    """
    seconds: dict[Stage, float] = {}
    open_costs = dict(costs)
    while open_costs:
        whole = sum(cost.share for cost in open_costs.values()) or 1.0
        fair = {stage: left * cost.share / whole for stage, cost in open_costs.items()}
        full = {stage: costs[stage].most / jobs for stage, value in fair.items() if value > costs[stage].most / jobs}
        if not full:
            return seconds | fair
        seconds |= full
        left -= sum(full.values())
        open_costs = {stage: cost for stage, cost in open_costs.items() if stage not in full}
    return seconds


def speech_hours(stage: Stage, seconds: float, jobs: int) -> float:
    """Hours of speech that a stage makes in its time on so many cores, within what is of use."""
    made = seconds * jobs * PACE[stage]
    return round(min(max(made, LEAST_SPEECH_S), MOST_SPEECH_S[stage]) / 3600, 4)


def patience(seconds: float) -> float:
    """Seconds after which a stage that makes data is ended with what it has made."""
    return PATIENCE * seconds + GRACE_S
