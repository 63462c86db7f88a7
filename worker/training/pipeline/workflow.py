"""The run of `./dev voice train`: every stage of the table with what it does."""

from worker.training.pipeline.engine import Course
from worker.training.pipeline.finishing import Finishing
from worker.training.pipeline.gathering import Gathering
from worker.training.pipeline.recipe import Recipe
from worker.training.pipeline.stages import TRAINING
from worker.training.pipeline.teaching import Teaching


def plan_training(recipe: Recipe) -> Course:
    """The stages of a recipe."""
    steps = Gathering(recipe).steps() | Teaching(recipe).steps() | Finishing(recipe).steps()
    return Course(TRAINING, steps, recipe.hours, recipe.jobs)
