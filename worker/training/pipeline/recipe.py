"""What a run is told, where its things lie, and the words that its stages have in common."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from worker.training.dataset import INDEX
from worker.training.pipeline.engine import Wave
from worker.training.pipeline.jobs import Job
from worker.training.pipeline.sources import Source

PEOPLE = "people"
SHARES = {"pseudo": 0.2, "kokoro": 0.35, PEOPLE: 0.45}
"""How often the synthesizer's batches come from each corpus, as far as it is there."""

_LEAST_MINUTES = 0.05

Measure = Callable[[], tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a run is told. `start` is a bundle to begin from, `people` whom to judge with, `text` the prompts; `half`
    multiplies in bfloat16."""

    folder: Path
    hours: float
    seed: int
    jobs: int
    sources: tuple[Source, ...] = ()
    people: Path | None = None
    text: Path | None = None
    start: Path | None = None
    styles: Path | None = None
    recogniser: Path | None = None
    kokoro: bool = True
    half: bool = False

    @property
    def materials(self) -> Path:
        """What the run needs before it begins."""
        return self.folder / "materials"

    @property
    def prompts(self) -> Path:
        """The texts that the teachers read."""
        return self.materials / "prompts.txt"

    @property
    def frames(self) -> Path:
        """What the vocoder learns from."""
        return self.folder / "frames"

    @property
    def bundle(self) -> Path:
        """The result."""
        return self.folder / "bundle"

    def corpus(self, name: str) -> Path:
        """A packed corpus: `pseudo`, `kokoro` or `people`."""
        return self.folder / "corpora" / name

    def is_packed(self, name: str) -> bool:
        """Whether a corpus is there, whole."""
        return (self.corpus(name) / INDEX).exists()

    def utterances(self) -> dict[str, list[Path]]:
        """Folders of utterances by the corpus that they are packed into; only those that hold any."""
        data = self.folder / "data"
        found = {"pseudo": [data / "pseudo"], "kokoro": [data / "kokoro"]}
        found[PEOPLE] = [data / "people" / source.name for source in self.sources]
        held = {name: [folder for folder in folders if any(folder.glob("*.npz"))] for name, folders in found.items()}
        return {name: folders for name, folders in held.items() if folders}

    def data(self) -> list[str]:
        """The packed corpora with their shares, as the trainings take them."""
        packed = {name: share for name, share in SHARES.items() if self.is_packed(name)}
        return [word for name, share in packed.items() for word in ("--data", f"{self.corpus(name)}:{share}")]

    def synthesizer(self) -> Path:
        """The checkpoint of the synthesizer that goes into the bundle."""
        sharpened = self.folder / "sharpened" / "checkpoint.pt"
        return sharpened if sharpened.exists() else self.folder / "synthesizer" / "checkpoint.pt"

    def vocoder(self) -> Path:
        """The checkpoint of the vocoder that goes into the bundle."""
        polished = self.folder / "polished" / "last.pt"
        return polished if polished.exists() else self.folder / "tuned" / "last.pt"


def make_job(name: str, module: str, *words: object, threads: int = 1, measure: Measure | None = None) -> Job:
    """A job whose arguments are these words."""
    arguments = tuple(str(word) for word in words)
    return Job(name, module, arguments, threads, measure) if measure else Job(name, module, arguments, threads)


def in_turns(jobs: Sequence[Job], together: int) -> Iterator[Wave]:
    """Waves of so many jobs at a time."""
    rest = iter(jobs)
    while wave := list(islice(rest, together)):
        yield Wave(wave, len(wave) / len(jobs))


def to_minutes(seconds: float) -> float:
    """Minutes of training for a stage, few as they may be."""
    return round(max(_LEAST_MINUTES, seconds / 60), 3)
