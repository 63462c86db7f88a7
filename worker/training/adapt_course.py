"""What each stage of `./dev voice adapt` runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.training.pipeline.curves import measure_files, measure_speech, measure_training
from worker.training.pipeline.engine import Course, Step, Wave
from worker.training.pipeline.finishing import HIBARI
from worker.training.pipeline.jobs import Job
from worker.training.pipeline.recipe import make_job
from worker.training.pipeline.stages import ADAPTING, Stage

REHEARSAL_HOURS, REHEARSAL_SPEAKERS = 0.15, 60
SPEAKER = "adapted"


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What a run is told. `count` recordings are learnt from and `held` are the names of those that are not; `training`
    are options of the synthesizer's training; `rehearse` is the share of batches from pseudo-speakers, which keep it
    from forgetting everybody else; with `several` speakers a name begins with the speaker and a dash."""

    folder: Path
    recordings: Path
    count: int
    held: tuple[str, ...]
    base: Path
    minutes: float
    training: tuple[object, ...]
    rehearse: float
    several: bool
    seed: int
    jobs: int

    @property
    def bundle(self) -> Path:
        """The result."""
        return self.folder / "bundle"


def plan_adaptation(adaptation: Adaptation) -> Course:
    """The stages of an adaptation."""
    return Course(ADAPTING, Adapting(adaptation).steps(), adaptation.minutes / 60, adaptation.jobs)


class Adapting:
    """The commands of the stages."""

    def __init__(self, adaptation: Adaptation) -> None:
        self._run = adaptation
        self._data, self._corpora = adaptation.folder / "data", adaptation.folder / "corpora"

    def steps(self) -> dict[Stage, Step]:
        """What each stage does."""
        return {
            Stage.PREPARE: Step(self._prepare),
            Stage.ALIGN: Step(self._align),
            Stage.RENDER: Step(self._render, lambda: None if self._run.rehearse else "--rehearse is 0"),
            Stage.FEATURES: Step(self._features),
            Stage.SYNTHESIZER: Step(self._synthesizer),
            Stage.EXPORT: Step(self._export),
            Stage.BUNDLE: Step(self._seal),
            Stage.EVALUATE: Step(self._compare),
        }

    def _prepare(self, _seconds: float) -> Iterator[Wave]:
        run = self._run
        asked = ("--run", run.folder, "--encoder", run.base / "encoder.onnx", "--no-styles")
        yield Wave([make_job("materials", "worker.training.pipeline.materials", *asked)])

    def _align(self, _seconds: float) -> Iterator[Wave]:
        run, out = self._run, self._data / "people"
        asked: list[object] = ["--data", run.recordings, "--out", out]
        asked += [word for name in run.held for word in ("--leave-out", name)]
        asked += [] if run.several else ["--speaker", SPEAKER]
        measure = measure_files(out, "*.done", run.count)

        def make_shard(shard: int) -> Job:
            part = ("--shard", f"{shard}/{run.jobs}")
            return make_job(f"align {shard + 1}", "worker.training.align", *asked, *part, measure=measure)

        yield Wave([make_shard(shard) for shard in range(run.jobs)])

    def _render(self, _seconds: float) -> Iterator[Wave]:
        run, out = self._run, self._data / "pseudo"
        asked = ("--hours", REHEARSAL_HOURS, "--out", out, "--text", run.folder / "materials" / "prompts.txt")
        seeded = ("--seed", run.seed, "--speakers", REHEARSAL_SPEAKERS)
        measure = measure_speech(out, REHEARSAL_HOURS, (0, 1))
        yield Wave([make_job("render", "worker.training.render", *asked, *seeded, measure=measure)])

    def _features(self, _seconds: float) -> Iterator[Wave]:
        encoder = ("--encoder", self._run.bundle / "encoder.onnx")
        names = ["pseudo", "people"] if self._run.rehearse else ["people"]
        for name in names:
            bands = ("--full-band", self._corpora / "pseudo") if name == "people" and self._run.rehearse else ()
            asked = ("--source", self._data / name, *encoder, "--out", self._corpora / name, *bands)
            yield Wave([make_job(f"pack {name}", "worker.training.dataset", *asked)])

    def _synthesizer(self, _seconds: float) -> Iterator[Wave]:
        run, out = self._run, self._run.folder / "synthesizer"
        data: list[object] = ["--data", f"{self._corpora / 'people'}:{1 - run.rehearse}"]
        data += ["--data", f"{self._corpora / 'pseudo'}:{run.rehearse}"] if run.rehearse else []
        asked = ("--out", out, "--minutes", run.minutes, "--start", run.base / "synthesizer.safetensors")
        more = ("--threads", run.jobs, "--seed", run.seed, *run.training)
        measure = measure_training(out / "losses.csv", run.minutes, 1)
        module = "worker.training.synthesizer.train"
        yield Wave([make_job("train", module, *data, *asked, *more, threads=run.jobs, measure=measure)])

    def _export(self, _seconds: float) -> Iterator[Wave]:
        run = self._run
        asked = ("--synthesizer", run.folder / "synthesizer" / "checkpoint.pt", "--bundle", run.bundle)
        yield Wave([make_job("export", "worker.training.pipeline.assembly", *asked, "--rest-of", run.base)])

    def _seal(self, _seconds: float) -> Iterator[Wave]:
        bundle = ("--bundle", self._run.bundle)
        version = ("--version", f"{self._run.base.name} adapted")
        yield Wave([make_job("manifest", "worker.training.bundle_export", *bundle, *version)])
        origins = ["--origin", "recordings with transcripts that were given to it"]
        origins += ["--origin", HIBARI] if self._run.rehearse else []
        only = ("--only", "synthesizer", "--start", self._run.base.name)
        yield Wave([make_job("origins", "worker.training.pipeline.sealing", *bundle, *origins, *only)])

    def _compare(self, _seconds: float) -> Iterator[Wave]:
        run = self._run
        asked: list[object] = ["--before", run.base, "--after", run.bundle, "--recordings", run.recordings]
        asked += ["--out", run.folder, *(word for name in run.held for word in ("--held", name))]
        asked += ["--several-speakers"] if run.several else []
        yield Wave([make_job("compare", "worker.training.adapt_comparison", *asked)])
