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

from worker.training.dataset import Corpus
from worker.training.synthesizer.batches import iterate_batches
from worker.training.synthesizer.network import Tacotron
from worker.training.synthesizer.objective import Losses, compute_losses
from worker.training.weights import load_weights

_WARM_UP = 300
_SAVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is told: minutes in all, batch size, peak learning rate, noise on fed-back frames (in standard
    deviations), the share of them that becomes the network's own after a fifth of the time, and whether products are
    made in bfloat16 (faster where the processor has it)."""

    minutes: float
    batch: int
    rate: float
    noise: float
    own: float
    half: bool


def learning_rate(plan: Plan, step: int, progress: float) -> float:
    """Warm-up by steps, then half a cosine by the clock to a fiftieth."""
    floor = 0.02
    decay = floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return plan.rate * min(1.0, (step + 1) / _WARM_UP) * decay


class Trainer:
    """The network, its optimiser and its moving average."""

    def __init__(self, corpora: list[tuple[Corpus, float]], out: Path, plan: Plan, start: Path | None = None) -> None:
        self._plan, self._out = plan, out
        self.network = Tacotron()
        if start is None:
            self._set_statistics(corpora[0][0])
        else:
            load_weights(self.network, start)
        self._optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.01
        )
        self.average = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.step, self.seconds = 0, 0.0
        self._resume()
        torch.manual_seed(self.step)
        self._batches = iterate_batches(corpora, plan.batch, np.random.default_rng(self.step))

    def _set_statistics(self, corpus: Corpus) -> None:
        sample = np.asarray(corpus.mels[:: max(1, len(corpus.mels) // 100_000)], np.float32)
        self.network.mean.copy_(torch.from_numpy(sample.mean(axis=0)))
        self.network.scale.copy_(torch.from_numpy(sample.std(axis=0) + 0.1))

    def _resume(self) -> None:
        path = self._out / "checkpoint.pt"
        if path.exists():
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.network.load_state_dict(state["network"])
            self.average.load_state_dict(state["average"])
            self._optimiser.load_state_dict(state["optimiser"])
            self.step, self.seconds = state["step"], state["seconds"]

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        state = {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        torch.save(state, self._out / "checkpoint.new")
        (self._out / "checkpoint.new").replace(self._out / "checkpoint.pt")

    def advance(self) -> Losses:
        """One optimiser step."""
        started, progress = time.monotonic(), self.seconds / 60 / self._plan.minutes
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate(self._plan, self.step, progress)
        own = self._plan.own if progress > 0.2 else 0.0
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._plan.half):
            losses = compute_losses(self.network, next(self._batches), self._plan.noise, own)
        self._optimiser.zero_grad(set_to_none=True)
        losses.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimiser.step()
        self._update_average()
        self.step += 1
        self.seconds += time.monotonic() - started
        return losses

    @torch.no_grad()
    def _update_average(self) -> None:
        weight = 1 - min(0.999, (1 + self.step) / (10 + self.step))
        for mean, value in zip(self.average.parameters(), self.network.parameters(), strict=True):
            mean.lerp_(value, weight)
        self.average.mean.copy_(self.network.mean)
        self.average.scale.copy_(self.network.scale)

    def run(self) -> None:
        """Train until the minutes are spent; a line of `losses.csv` every 25 steps."""
        saved = time.monotonic()
        with (self._out / "losses.csv").open("a", newline="", encoding="utf-8") as file:
            log = csv.writer(file)
            while self.seconds < self._plan.minutes * 60:
                losses = self.advance()
                if self.step % 25 == 0:
                    values = (losses.total, losses.frames, losses.refined, losses.attention)
                    log.writerow([self.step, round(self.seconds), *(f"{value.item():.4f}" for value in values)])
                    file.flush()
                if time.monotonic() - saved > _SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
        self.save()


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
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--own", type=float, default=0.5)
    parser.add_argument("--half", action="store_true", help="multiply in bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(options.minutes, options.batch, options.rate, options.noise, options.own, options.half)
    Trainer(read_corpora(options.data), options.out, plan, options.start).run()


if __name__ == "__main__":
    main()
