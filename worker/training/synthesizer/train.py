"""Training, resumable, by the clock.

    python -m worker.training.synthesizer.train --data DIR[:share] [--data ...] --out DIR --minutes 90

The learning rate follows the minutes trained so far over all runs, so a run may be stopped and taken up again.
"""

import argparse
import copy
import csv
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from worker.training.checkpoint import Parts, take_up, write_checkpoint
from worker.training.dataset import Corpus
from worker.training.synthesizer.batches import iterate_batches
from worker.training.synthesizer.network import Tacotron
from worker.training.synthesizer.objective import Losses, compute_losses
from worker.training.weights import load_weights

_SAVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is told: minutes in all, batch size, peak learning rate and the steps until it is reached, noise on
    fed-back frames (in standard deviations), the share of them that becomes the network's own after a fifth of the
    time, whether products are made in bfloat16 (faster where the processor has it), and two regularisations: the decay
    of the weights to zero and their pull to where they started."""

    minutes: float
    batch: int
    rate: float
    warm_up: int
    noise: float
    own: float
    half: bool
    weight_decay: float = 0.01
    pull: float = 0.0


def learning_rate(plan: Plan, step: int, progress: float) -> float:
    """Warm-up by steps, then half a cosine by the clock to a fiftieth."""
    floor = 0.02
    decay = floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return plan.rate * min(1.0, (step + 1) / plan.warm_up) * decay


class Trainer:
    """The network, its optimiser and its moving average."""

    def __init__(
        self, corpora: list[tuple[Corpus, float]], out: Path, plan: Plan, start: Path | None = None, seed: int = 0
    ) -> None:
        self._plan, self._out = plan, out
        self.network = Tacotron() if start is None else start_network(start)
        self._origin = None if start is None else copy.deepcopy(self.network).requires_grad_(False)
        if start is None:
            self._set_statistics(corpora[0][0])
        self._optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=plan.weight_decay
        )
        self.average = copy.deepcopy(self.network).eval().requires_grad_(False)
        self._parts: Parts = {"network": self.network, "average": self.average, "optimiser": self._optimiser}
        self.step, self.seconds = take_up(out / "checkpoint.pt", self._parts)
        torch.manual_seed(seed + self.step)
        self._batches = iterate_batches(corpora, plan.batch, np.random.default_rng([seed, self.step]))

    def _set_statistics(self, corpus: Corpus) -> None:
        sample = np.asarray(corpus.mels[:: max(1, len(corpus.mels) // 100_000)], np.float32)
        self.network.mean.copy_(torch.from_numpy(sample.mean(axis=0)))
        self.network.scale.copy_(torch.from_numpy(sample.std(axis=0) + 0.1))

    def _pull(self) -> torch.Tensor:
        """What keeps the weights near those of the start (L2-SP of Li et al., 2018)."""
        if not self._plan.pull or self._origin is None:
            return torch.zeros(())
        pairs = zip(self.network.parameters(), self._origin.parameters(), strict=True)
        return self._plan.pull * torch.stack([(value - first).square().sum() for value, first in pairs]).sum()

    def save(self) -> None:
        """Write the checkpoint."""
        write_checkpoint(self._out / "checkpoint.pt", self._parts, self.step, self.seconds)

    def advance(self) -> Losses:
        """One optimiser step; raises ArithmeticError, before the weights change, when the loss is not finite."""
        started, progress = time.monotonic(), self.seconds / 60 / self._plan.minutes
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate(self._plan, self.step, progress)
        own = self._plan.own if progress > 0.2 else 0.0
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._plan.half):
            losses = compute_losses(self.network, next(self._batches), self._plan.noise, own)
        minimise(losses.total + self._pull(), self._optimiser, self.network, self.step)
        update_average(self.average, self.network, self.step)
        self.step += 1
        self.seconds += time.monotonic() - started
        return losses

    def run(self) -> None:
        """Train until the minutes are spent; a line of `losses.csv` every 25 steps."""
        saved = time.monotonic()
        with (self._out / "losses.csv").open("a", newline="", encoding="utf-8") as file:
            log = csv.writer(file)
            while self.seconds < self._plan.minutes * 60 or not self.step:
                losses = self.advance()
                if self.step % 25 == 0:
                    values = (losses.total, losses.frames, losses.refined, losses.attention)
                    log.writerow([self.step, round(self.seconds), *(f"{value.item():.4f}" for value in values)])
                    file.flush()
                if time.monotonic() - saved > _SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
        self.save()


def minimise(loss: torch.Tensor, optimiser: torch.optim.Optimizer, network: torch.nn.Module, step: int) -> None:
    """One step of an optimiser, gradients clipped; raises ArithmeticError instead when the loss is not finite."""
    if not torch.isfinite(loss):
        raise ArithmeticError(f"the loss is not finite at step {step}")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()


def start_network(path: Path) -> Tacotron:
    """The network with the weights of a bundle's safetensors or of a checkpoint's average."""
    network = Tacotron()
    if path.suffix == ".pt":
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["average"])
    else:
        load_weights(network, path, new=("quality.weight", "asked"))
    return network


@torch.no_grad()
def update_average(average: Tacotron, network: Tacotron, step: int) -> None:
    """Move the average towards the network, fast at first."""
    weight = 1 - min(0.999, (1 + step) / (10 + step))
    for mean, value in zip(average.parameters(), network.parameters(), strict=True):
        mean.lerp_(value, weight)
    average.mean.copy_(network.mean)
    average.scale.copy_(network.scale)


def read_corpora(arguments: list[str]) -> list[tuple[Corpus, float]]:
    """Corpora and shares of `DIR` or `DIR:share` arguments."""
    pairs = (argument.rpartition(":") if ":" in argument else (argument, "", "1") for argument in arguments)
    return [(Corpus.load(Path(root)), float(share)) for root, _, share in pairs]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the synthesizer.")
    parser.add_argument("--data", action="append", required=True, help="a packed corpus, with :share when not 1")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--start", type=Path, help="weights to begin from, such as those of a bundle")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warm-up", type=int, default=300, help="steps until that rate")
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--own", type=float, default=0.5)
    parser.add_argument("--half", action="store_true", help="multiply in bfloat16")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--pull", type=float, default=0.0, help="weight of the distance to the starting weights")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        minutes=options.minutes,
        batch=options.batch,
        rate=options.rate,
        warm_up=options.warm_up,
        noise=options.noise,
        own=options.own,
        half=options.half,
        weight_decay=options.weight_decay,
        pull=options.pull,
    )
    Trainer(read_corpora(options.data), options.out, plan, options.start, options.seed).run()


if __name__ == "__main__":
    main()
