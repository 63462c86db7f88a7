"""The stages that train the networks."""

from collections.abc import Iterator
from pathlib import Path

from worker.training.pipeline.budget import speech_hours
from worker.training.pipeline.curves import measure_training
from worker.training.pipeline.engine import Step, Wave
from worker.training.pipeline.jobs import Job
from worker.training.pipeline.recipe import PEOPLE, Recipe, in_turns, make_job, to_minutes
from worker.training.pipeline.stages import TRAINING, Stage

_PEOPLE_WEIGHT = 1.5
_LEAST_SHARPEN_S, _LEAST_POLISH_S = 300.0, 120.0
_MOST_POLISH_S = 480.0
"""An adversary wanders once it has found what there is to find."""

_MOST_PAIRS = 1500
_PAIRED = {"kokoro": 0.5, PEOPLE: 0.5}
"""The corpora of natural speech, and how often the polish hears each; pseudo-speakers are not natural enough."""

_ENDLESS = 10**9
"""Steps of a training that ends by the clock."""

_TUNING_RATE = 5e-4
_NARROW_STEPS_PER_S, _LEAST_NARROW_STEPS, _NARROW_STEPS = 8, 20, 12_000


class Teaching:
    """The commands of those stages for a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def steps(self) -> dict[Stage, Step]:
        """What each stage does."""
        return {
            Stage.SYNTHESIZER: Step(self._synthesizer),
            Stage.SHARPEN: Step(self._sharpen, lambda: self._too_short(Stage.SHARPEN, _LEAST_SHARPEN_S)),
            Stage.VOCODER: Step(self._vocoder),
            Stage.DISTIL: Step(self._distil, elastic=True),
            Stage.TUNING: Step(self._tune),
            Stage.POLISH: Step(self._polish, self._without_pairs),
            Stage.NARROW: Step(self._narrow),
        }

    def _synthesizer(self, seconds: float) -> Iterator[Wave]:
        start = self._recipe.start
        more = ("--start", start / "synthesizer.safetensors") if start else ()
        yield self._train_synthesizer("synthesizer", "train", seconds, *more)

    def _sharpen(self, seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        start, encoder = recipe.folder / "synthesizer" / "checkpoint.pt", recipe.bundle / "encoder.onnx"
        yield self._train_synthesizer("sharpened", "sharpen", seconds, "--start", start, "--encoder", encoder)

    def _train_synthesizer(self, folder: str, program: str, seconds: float, *more: object) -> Wave:
        recipe, out, minutes = self._recipe, self._recipe.folder / folder, to_minutes(seconds)
        half = ("--half",) if recipe.half else ()
        seeded = ("--threads", recipe.jobs, "--seed", recipe.seed)
        asked = (*recipe.data(), "--out", out, "--minutes", minutes, *seeded, *half, *more)
        measure, module = measure_training(out / "losses.csv", minutes, 1), f"worker.training.synthesizer.{program}"
        return Wave([make_job(program, module, *asked, threads=recipe.jobs, measure=measure)])

    def _too_short(self, stage: Stage, least: float) -> str | None:
        enough = self._recipe.hours * 3600 * TRAINING[stage].share >= least
        return None if enough else "the run is too short for it to be of use"

    def _vocoder(self, seconds: float) -> Iterator[Wave]:
        start = self._recipe.start
        more = ("--start", start / "vocoder.safetensors") if start else ()
        yield self._train_vocoder("vocoder", seconds, *more)

    def _train_vocoder(self, folder: str, seconds: float, *more: object) -> Wave:
        recipe, out, minutes = self._recipe, self._recipe.folder / folder, to_minutes(seconds)
        asked = ("--frames", recipe.frames, "--run", out, "--minutes", minutes, "--steps", _ENDLESS, *more)
        asked = (*asked, "--threads", recipe.jobs, "--seed", recipe.seed, "--record-weight", _PEOPLE_WEIGHT)
        measure = measure_training(out / "log.csv", minutes, -1)
        return Wave([make_job(folder, "worker.training.vocoder.train", *asked, threads=recipe.jobs, measure=measure)])

    def _distil(self, seconds: float) -> Iterator[Wave]:
        recipe, hours = self._recipe, speech_hours(Stage.DISTIL, seconds, 1)
        checkpoints = ("--synthesizer", recipe.synthesizer(), "--vocoder", recipe.folder / "vocoder" / "last.pt")
        asked = (*recipe.data(), *checkpoints, "--hours", hours, "--out", recipe.frames, "--seed", recipe.seed)
        yield Wave([make_job("distil", "worker.training.vocoder.distil", *asked)])

    def _tune(self, seconds: float) -> Iterator[Wave]:
        folder = self._recipe.folder / "vocoder"
        start = folder / "start.safetensors"
        yield Wave([make_job("weights", "worker.training.weights", "--checkpoint", folder / "last.pt", "--out", start)])
        yield self._train_vocoder("tuned", seconds, "--start", start, "--rate", _TUNING_RATE)

    def _without_pairs(self) -> str | None:
        if not self._paired():
            return "there is no natural speech to hear: neither Kokoro nor --data"
        return self._too_short(Stage.POLISH, _LEAST_POLISH_S)

    def _paired(self) -> dict[str, list[Path]]:
        return {name: folders for name, folders in self._recipe.utterances().items() if name in _PAIRED}

    def _polish(self, seconds: float) -> Iterator[Wave]:
        recipe, out = self._recipe, self._recipe.folder / "polished"
        pairs = {name: recipe.folder / "pairs" / f"{name}.npz" for name in self._paired()}
        missing = [self._pair(name, path) for name, path in pairs.items() if not path.exists()]
        yield from in_turns(missing, recipe.jobs)
        minutes = to_minutes(min(seconds, _MOST_POLISH_S))
        heard = [word for name, path in pairs.items() for word in ("--pairs", f"{path}:{_PAIRED[name]}")]
        start = ("--start", recipe.folder / "tuned" / "last.pt")
        asked = (*heard, *start, "--run", out, "--minutes", minutes, "--threads", recipe.jobs, "--seed", recipe.seed)
        measure = measure_training(out / "log.csv", minutes, -1)
        job = make_job("polish", "worker.training.vocoder.polish", *asked, threads=recipe.jobs, measure=measure)
        yield Wave([job])

    def _pair(self, name: str, out: Path) -> Job:
        recipe = self._recipe
        sources = [word for folder in self._paired()[name] for word in ("--source", folder)]
        asked = ("--corpus", recipe.corpus(name), "--synthesizer", recipe.synthesizer(), "--out", out)
        more = ("--limit", _MOST_PAIRS, "--seed", recipe.seed)
        return make_job(f"pair {name}", "worker.training.vocoder.pairs", *sources, *asked, *more)

    def _narrow(self, seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        start = recipe.start / "vocoder_16k.safetensors" if recipe.start else None
        steps = max(_LEAST_NARROW_STEPS, min(_NARROW_STEPS, round(seconds * _NARROW_STEPS_PER_S)))
        asked = ("--bundle", recipe.bundle, "--mels", recipe.frames, "--run", recipe.folder / "vocoder-16k")
        more = ("--start", start) if start and start.exists() else ()
        limits = ("--steps", steps, "--minutes", to_minutes(seconds))
        yield Wave([make_job("vocoder-16k", "worker.training.vocoder.narrow", *asked, *limits, *more)])
