"""The stages of a training run, what each may cost, and the ways a stage's status can change."""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """A stage; the value names its folder, its log and its line in `run.json`."""

    PREPARE = "prepare"
    RENDER = "render"
    KOKORO = "kokoro"
    ALIGN = "align"
    FEATURES = "features"
    QUALITY = "quality"
    SYNTHESIZER = "synthesizer"
    SHARPEN = "sharpen"
    FRAMES = "frames"
    VOCODER = "vocoder"
    DISTIL = "distil"
    TUNING = "tuning"
    POLISH = "polish"
    EXPORT = "export"
    NARROW = "vocoder-16k"
    BUNDLE = "bundle"
    EVALUATE = "evaluate"
    CARD = "card"


class Status(StrEnum):
    """Where a stage is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


MOVES: dict[Status, frozenset[Status]] = {
    Status.WAITING: frozenset({Status.RUNNING, Status.SKIPPED}),
    # A run that was killed leaves a stage running; the next one takes it up.
    Status.RUNNING: frozenset({Status.RUNNING, Status.DONE, Status.FAILED}),
    Status.FAILED: frozenset({Status.RUNNING}),
    Status.DONE: frozenset(),
    Status.SKIPPED: frozenset(),
}


def check_move(stage: str, old: Status, new: Status) -> None:
    """Raises ValueError for a change of status that is not in the table."""
    if new not in MOVES[old]:
        raise ValueError(f"stage {stage} cannot go from {old} to {new}")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage may take: `share` of the run's time, `most` seconds of all cores beyond which more is of no use,
    and `room`, megabytes that must be free on the disk when it begins."""

    share: float
    most: float = float("inf")
    room: int = 50


TRAINING: dict[Stage, Cost] = {
    Stage.PREPARE: Cost(0.0, room=400),
    Stage.RENDER: Cost(0.03, most=1500, room=200),
    Stage.KOKORO: Cost(0.18, most=40_000, room=200),
    Stage.ALIGN: Cost(0.08, most=6000, room=200),
    Stage.FEATURES: Cost(0.01, most=1500, room=300),
    Stage.QUALITY: Cost(0.02, most=1500),
    Stage.SYNTHESIZER: Cost(0.18, room=300),
    Stage.SHARPEN: Cost(0.15, room=300),
    Stage.FRAMES: Cost(0.03, most=1500, room=300),
    Stage.VOCODER: Cost(0.10, room=150),
    Stage.DISTIL: Cost(0.02, most=900, room=300),
    Stage.TUNING: Cost(0.04, room=150),
    Stage.POLISH: Cost(0.06, room=300),
    Stage.EXPORT: Cost(0.0, room=200),
    Stage.NARROW: Cost(0.05, room=150),
    Stage.BUNDLE: Cost(0.0, room=100),
    Stage.EVALUATE: Cost(0.05, most=7200),
    Stage.CARD: Cost(0.0),
}
"""The run of `./dev voice train`, in its order."""

ADAPTING: dict[Stage, Cost] = {
    Stage.PREPARE: Cost(0.0, room=200),
    Stage.ALIGN: Cost(0.0, room=100),
    Stage.RENDER: Cost(0.0, room=100),
    Stage.FEATURES: Cost(0.0, room=100),
    Stage.SYNTHESIZER: Cost(1.0, room=200),
    Stage.EXPORT: Cost(0.0, room=100),
    Stage.BUNDLE: Cost(0.0, room=100),
    Stage.EVALUATE: Cost(0.0),
}
"""The run of `./dev voice adapt`: its time is that of the synthesizer's training alone."""
