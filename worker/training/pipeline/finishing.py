"""The stages that make a bundle of what was learnt, and judge it."""

from collections.abc import Iterator

from worker.training.pipeline.engine import Step, Wave
from worker.training.pipeline.recipe import Recipe, make_job
from worker.training.pipeline.stages import Stage

HIBARI = "pseudo-speakers rendered with hibari-tts 0.2.1 (Apache-2.0)"
KOKORO = "mixed voices of Kokoro-82M (Apache-2.0)"

_JUDGEMENTS_PER_S = 0.25
_WHOLE_EVALUATION = 200
"""Judgements below which only a few sentences are judged, with one vocoder."""


class Finishing:
    """The commands of those stages for a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def steps(self) -> dict[Stage, Step]:
        """What each stage does."""
        return {
            Stage.EXPORT: Step(self._export),
            Stage.BUNDLE: Step(self._seal),
            Stage.EVALUATE: Step(self._evaluate),
            Stage.CARD: Step(self._card),
        }

    def _export(self, _seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        checkpoints = ("--synthesizer", recipe.synthesizer(), "--vocoder", recipe.vocoder())
        yield Wave([make_job("export", "worker.training.pipeline.assembly", *checkpoints, "--bundle", recipe.bundle)])

    def _seal(self, _seconds: float) -> Iterator[Wave]:
        recipe = self._recipe
        bundle = ("--bundle", recipe.bundle)
        yield Wave([make_job("manifest", "worker.training.bundle_export", *bundle, "--version", f"seed {recipe.seed}")])
        origins = [HIBARI, *([KOKORO] if "kokoro" in recipe.utterances() else [])]
        origins += [source.origin for source in recipe.sources]
        told = [word for origin in origins for word in ("--origin", origin)]
        started = ("--start", recipe.start.name) if recipe.start else ()
        yield Wave([make_job("origins", "worker.training.pipeline.sealing", *bundle, *told, *started)])

    def _evaluate(self, seconds: float) -> Iterator[Wave]:
        recipe, own = self._recipe, self._recipe.materials / "recogniser"
        recogniser = recipe.recogniser or (own if own.exists() and recipe.hours > 1 else None)
        more: list[object] = ["--recogniser", recogniser] if recogniser else []
        if seconds * _JUDGEMENTS_PER_S < _WHOLE_EVALUATION:
            more += ["--sentences", recipe.materials / "few.txt", "--vocoder", "vocoder", "--no-recordings"]
        asked = ("--bundle", recipe.bundle, "--people", recipe.people or recipe.materials / "people", "--record")
        out = recipe.folder / "evaluation"
        yield Wave([make_job("evaluate", "worker.training.judging", *asked, "--out", out, *more)])

    def _card(self, _seconds: float) -> Iterator[Wave]:
        yield Wave([make_job("card", "worker.training.pipeline.card", "--run", self._recipe.folder)])
