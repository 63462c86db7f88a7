"""Training of the vocoder network by regression on the parts of speech.

    python -m worker.training.vocoder.train --frames DIR --run DIR --steps 20000 --minutes 60

Goes on from the last checkpoint of the run's folder; writes `log.csv` and `last.pt` there. The exported weights are the
exponential average.
"""

import argparse
import csv
import math
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from worker.training.vocoder.batches import Sampler
from worker.training.vocoder.corpus import Frames
from worker.training.vocoder.network import VocoderNetwork, empty_caches
from worker.training.vocoder.objective import Losses, compare_parts
from worker.training.weights import load_weights

CROP = 200
BATCH = 10
WARM_STEPS = 200
LOG_EVERY = 50
SAVE_EVERY_S = 60.0


@dataclass(slots=True)
class Training:
    """A run in progress; `seconds` is how long it has been trained, over all processes."""

    network: VocoderNetwork
    average: AveragedModel
    optimizer: torch.optim.AdamW
    step: int = 0
    seconds: float = 0.0

    @classmethod
    def start(cls, weights: Path | None = None, seed: int = 1) -> "Training":
        """A run that has not begun; with `weights`, such as those of a bundle, from there."""
        torch.manual_seed(seed)
        network = VocoderNetwork()
        if weights is not None:
            load_weights(network, weights)
        average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.998))  # type: ignore[no-untyped-call]
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
        return cls(network, average, optimizer)

    def save(self, path: Path) -> None:
        """Store the run; the file is never half written."""
        part = path.with_suffix(".part")
        state = {name: getattr(self, name).state_dict() for name in ("network", "average", "optimizer")}
        torch.save(state | {"step": self.step, "seconds": self.seconds}, part)
        part.rename(path)

    def resume(self, path: Path) -> None:
        """Take up a stored run."""
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        for name in ("network", "average", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.step, self.seconds = state["step"], state.get("seconds", 0.0)

    def advance(self, batch: Frames, rate: float) -> Losses:
        """One step of the optimizer. Raises ArithmeticError, before it, when the loss is not finite."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        mel, f0, harmonic, noise = (torch.from_numpy(array) for array in astuple(batch))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = self.network(mel, empty_caches(len(mel)))[:4]
        losses = compare_parts(predicted, f0, harmonic, noise)
        if not torch.isfinite(losses.total()):
            raise ArithmeticError(f"the loss is not finite at step {self.step}; the last checkpoint is kept")
        self.optimizer.zero_grad(set_to_none=True)
        losses.total().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.average.update_parameters(self.network)
        self.step += 1
        return losses


def learning_rate(step: int, steps: float, peak: float) -> float:
    """A short rise, then half a cosine down to a fiftieth."""
    progress = min(1.0, step / steps)
    return peak * min(1.0, (step + 1) / WARM_STEPS) * (0.51 + 0.49 * math.cos(math.pi * progress))


def run(options: argparse.Namespace) -> None:
    """Train until the steps or the minutes, those of earlier processes included, are used up."""
    options.run.mkdir(parents=True, exist_ok=True)
    training, stored = Training.start(options.start, options.seed), options.run / "last.pt"
    if stored.exists():
        training.resume(stored)
    sampler = Sampler.read(options.frames, CROP, options.record_weight)
    rng, saved = np.random.default_rng([training.step, options.seed, 3]), time.monotonic()
    while (progress := max(training.step / options.steps, training.seconds / 60 / options.minutes)) < 1:
        began = time.monotonic()
        # By the clock, if that will be the first to end it.
        steps = training.step / progress if progress else options.steps
        losses = training.advance(sampler.draw(rng, BATCH), learning_rate(training.step, steps, options.rate))
        training.seconds += time.monotonic() - began
        if training.step % LOG_EVERY == 0:
            write_log(options.run / "log.csv", training.step, losses, training.seconds)
        if time.monotonic() - saved > SAVE_EVERY_S:
            training.save(stored)
            # Shards that were written meanwhile are learnt from, too.
            sampler, saved = Sampler.read(options.frames, CROP, options.record_weight), time.monotonic()
    training.save(stored)


def write_log(path: Path, step: int, losses: Losses, seconds: float) -> None:
    """One line of figures."""
    with path.open("a", newline="", encoding="utf-8") as file:
        row = [f"{value:.4f}" for value in losses.values()]
        csv.writer(file).writerow([step, *row, f"{seconds:.0f}"])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the vocoder network.")
    parser.add_argument("--frames", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="weights to begin from, such as those of a bundle")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--record-weight", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run(options)


if __name__ == "__main__":
    main()
