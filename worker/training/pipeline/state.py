"""What a run remembers: its options, its time for each stage, and how far it is. Written whole or not at all."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from worker.errors import TrainingError
from worker.training.pipeline.stages import Status, check_move

FILE = "run.json"
FORMAT = 1
_OURS = frozenset({FILE, "run.lock", f"{FILE}.part"})


@dataclass(slots=True)
class Record:
    """One stage: its status, the seconds it was worked on, and what there is to say about it."""

    status: Status = Status.WAITING
    seconds: float = 0.0
    note: str = ""


@dataclass(slots=True)
class RunState:
    """The state of a run's folder; `budget` holds the seconds of the stages that have begun."""

    folder: Path
    options: dict[str, Any]
    budget: dict[str, float] = field(default_factory=dict)
    stages: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, options: Mapping[str, Any], stages: Iterable[str]) -> Self:
        """The state of the run that is there, or of a new one.

        Raises TrainingError when the folder holds something else, or a run with other options.
        """
        path = folder / FILE
        if path.exists():
            state = cls._read(folder)
            state._check_options(options)
            return state
        if any(entry.name not in _OURS for entry in folder.iterdir()):
            raise TrainingError(f"{folder} holds other files and no {FILE}: give an empty or a new folder with --out")
        return cls(folder, dict(options), {}, {str(name): Record() for name in stages})

    @classmethod
    def _read(cls, folder: Path) -> Self:
        try:
            stored = json.loads((folder / FILE).read_text(encoding="utf-8"))
            if stored["format"] != FORMAT:
                raise ValueError(f"format {stored['format']}")
            stages = {
                name: Record(Status(entry["status"]), float(entry["seconds"]), entry["note"])
                for name, entry in stored["stages"].items()
            }
            return cls(folder, stored["options"], stored["budget"], stages)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise TrainingError(f"{folder / FILE} cannot be read ({problem}): choose another --out") from problem

    @staticmethod
    def stored_jobs(folder: Path) -> int | None:
        """How many processes at once the run that is there was begun with, if there is one that can be read."""
        try:
            return int(json.loads((folder / FILE).read_text(encoding="utf-8"))["options"]["jobs"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _check_options(self, options: Mapping[str, Any]) -> None:
        names = sorted(self.options.keys() | options.keys())
        pairs = [(name, self.options.get(name), options.get(name)) for name in names]
        told = ", ".join(f"--{name} is {there} there and {here} here" for name, there, here in pairs if there != here)
        if told:
            fix = "give the same to go on with it, or another --out"
            raise TrainingError(f"{self.folder} holds a run with other options ({told}): {fix}")

    def move(self, stage: str, status: Status, note: str = "") -> None:
        """Change a stage's status and store the state."""
        record = self.stages[stage]
        check_move(stage, record.status, status)
        record.status, record.note = status, note
        self.save()

    def save(self) -> None:
        """Store the state. Raises TrainingError when the disk does not take it; what was there stays."""
        stages = {
            name: {"status": record.status, "seconds": round(record.seconds, 1), "note": record.note}
            for name, record in self.stages.items()
        }
        content = {"format": FORMAT, "options": self.options, "budget": self.budget, "stages": stages}
        part = self.folder / f"{FILE}.part"
        try:
            part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            part.replace(self.folder / FILE)
        except OSError as problem:
            raise TrainingError(f"{self.folder / FILE} cannot be written ({problem.strerror}): make room") from problem

    def pending(self) -> list[str]:
        """The stages that are neither done nor skipped, in their order."""
        return [name for name, record in self.stages.items() if record.status not in (Status.DONE, Status.SKIPPED)]
