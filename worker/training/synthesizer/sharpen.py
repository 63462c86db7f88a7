"""The adversarial stage: regression gives the mean of what speech might be, the adversary asks for one of them.

    python -m worker.training.synthesizer.sharpen --data DIR[:share] [--data ...] --start WEIGHTS \
        --encoder bundles/base/encoder.onnx --out DIR --minutes 60

Resumable, by the clock. The regression stays as an anchor, so that words are kept, and the speaker encoder listens, so
that voices are.
"""

import argparse
import copy
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from worker.training.checkpoint import Parts, take_up, write_checkpoint
from worker.training.dataset import Corpus
from worker.training.rivalry import adversary_loss, deception_loss, matching_loss
from worker.training.synthesizer.adversary import Adversary, crop_valid, pick_rows
from worker.training.synthesizer.batches import Batch, iterate_batches
from worker.training.synthesizer.likeness import FRAMES, MelEncoder, likeness_loss
from worker.training.synthesizer.objective import Attempt, attempt_batch, regression_losses
from worker.training.synthesizer.train import minimise, read_corpora, start_network, update_average

_CROP = 96
_WARM_UP = 200
_SAVE_SECONDS = 120.0
_OWN = 0.6
_LISTENED = 16
"""Rows of a batch that the speaker encoder hears: it costs as much as the rest."""

_NAMES = ("regression", "attention", "adversary", "deception", "matching", "likeness")


@dataclass(frozen=True, slots=True)
class Plan:
    """Minutes in all, utterances a batch, peak learning rate, noise on fed-back frames, the weights of deceiving the
    adversary, of matching its features and of the likeness to the speaker beside the regression, the share of rows in
    voices that nobody has, and whether products are made in bfloat16."""

    minutes: float
    batch: int
    rate: float
    noise: float
    deception: float
    matching: float
    likeness: float
    strangers: float
    half: bool


@dataclass(frozen=True, slots=True)
class Rivalry:
    """Scalars: what the adversary lost, what the network lost to it, and the distance between their features."""

    adversary: torch.Tensor
    deception: torch.Tensor
    matching: torch.Tensor


class Sharpener:
    """The network, its adversary, an optimiser for each, and the network's moving average."""

    def __init__(
        self, corpora: list[tuple[Corpus, float]], out: Path, plan: Plan, start: Path, encoder: Path, seed: int
    ) -> None:
        self._plan, self._out = plan, out
        self.network, self.adversary = start_network(start), Adversary()
        self._encoder = MelEncoder(encoder)
        self._optimiser = torch.optim.AdamW(self.network.parameters(), lr=plan.rate, betas=(0.8, 0.98))
        self._rival = torch.optim.AdamW(self.adversary.parameters(), lr=2 * plan.rate, betas=(0.5, 0.9))
        self.average = copy.deepcopy(self.network).eval().requires_grad_(False)
        self._parts: Parts = {
            "network": self.network,
            "average": self.average,
            "adversary": self.adversary,
            "optimiser": self._optimiser,
            "rival": self._rival,
        }
        self.step, self.seconds = take_up(out / "checkpoint.pt", self._parts)
        torch.manual_seed(seed + self.step)
        self._batches = iterate_batches(corpora, plan.batch, np.random.default_rng([seed, self.step]))

    def save(self) -> None:
        """Write the checkpoint."""
        write_checkpoint(self._out / "checkpoint.pt", self._parts, self.step, self.seconds)

    def advance(self) -> dict[str, float]:
        """One step of the adversary and one of the network; their losses.

        Raises ArithmeticError, before the weights change, when a loss is not finite.
        """
        started, batch = time.monotonic(), next(self._batches)
        self._set_rates()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._plan.half):
            attempt = attempt_batch(self.network, batch, self._plan.noise, _OWN, self._strangers)
            losses = regression_losses(attempt)
            rivalry = self._compete(attempt, batch)
        likeness = self._listen(attempt)
        trust = min(1.0, self.step / _WARM_UP)
        total = losses.total + trust * (
            self._plan.deception * rivalry.deception
            + self._plan.matching * rivalry.matching
            + self._plan.likeness * likeness
        )
        minimise(total, self._optimiser, self.network, self.step)
        update_average(self.average, self.network, self.step)
        self.step += 1
        self.seconds += time.monotonic() - started
        rival = (rivalry.adversary, rivalry.deception, rivalry.matching)
        values = (losses.refined, losses.attention, *rival, likeness)
        return dict(zip(_NAMES, (value.item() for value in values), strict=True))

    def _listen(self, attempt: Attempt) -> torch.Tensor:
        """The loss of likeness of those rows that are long enough to tell."""
        lengths = attempt.spoken.sum(dim=1)
        lengths[_LISTENED:] = 0
        if int(lengths.max()) < FRAMES:
            return torch.zeros(())
        (made,), rows = crop_valid((attempt.refined,), lengths, FRAMES)
        mels = made * self.network.scale + self.network.mean
        return likeness_loss(self._encoder, mels, attempt.embedding[rows])

    @property
    def _strangers(self) -> float:
        """Strangers come once the known voices are in order; a batch always keeps some of those."""
        return self._plan.strangers if self.step >= _WARM_UP else 0.0

    def _compete(self, attempt: Attempt, batch: Batch) -> Rivalry:
        """Teach the adversary, then ask it; nothing of both when every row is too short for it."""
        lengths = attempt.spoken.sum(dim=1)
        if int(lengths.max()) < _CROP:
            return Rivalry(*torch.zeros(3))
        (real, made), rows = crop_valid((attempt.truth, attempt.refined), lengths, _CROP)
        true, voices = batch.embedding[rows], attempt.embedding[rows]
        loss = adversary_loss(self.adversary(real, true), self.adversary(made.detach(), voices))
        minimise(loss, self._rival, self.adversary, self.step)
        judged = self.adversary(made, voices)
        known = torch.nonzero(~attempt.stranger[rows]).flatten()
        if not len(known):
            return Rivalry(loss.detach(), deception_loss(judged), torch.zeros(()))
        with torch.no_grad():
            wanted = self.adversary(real[known], true[known])
        return Rivalry(loss.detach(), deception_loss(judged), matching_loss(wanted, pick_rows(judged, known)))

    def _set_rates(self) -> None:
        """A warm-up by steps, then down to a tenth over the last half of the time."""
        progress = self.seconds / 60 / self._plan.minutes
        scale = min(1.0, (self.step + 1) / _WARM_UP) * min(1.0, max(0.1, 2 * (1 - progress)))
        for optimiser, rate in ((self._optimiser, self._plan.rate), (self._rival, 2 * self._plan.rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * scale

    def run(self) -> None:
        """Train until the minutes are spent; a line of `losses.csv` every 25 steps."""
        saved = time.monotonic()
        with (self._out / "losses.csv").open("a", newline="", encoding="utf-8") as file:
            log = csv.writer(file)
            while self.seconds < self._plan.minutes * 60 or not self.step:
                losses = self.advance()
                if self.step % 25 == 0:
                    log.writerow([self.step, round(self.seconds), *(f"{value:.4f}" for value in losses.values())])
                    file.flush()
                if time.monotonic() - saved > _SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
        self.save()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the synthesizer against an adversary.")
    parser.add_argument("--data", action="append", required=True, help="a packed corpus, with :share when not 1")
    parser.add_argument("--start", type=Path, required=True, help="weights or a checkpoint of the regression")
    parser.add_argument("--encoder", type=Path, required=True, help="the speaker encoder's graph in a bundle")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--deception", type=float, default=1.0)
    parser.add_argument("--matching", type=float, default=1.0)
    parser.add_argument("--likeness", type=float, default=1.0)
    parser.add_argument("--strangers", type=float, default=0.3, help="share of rows in mixed voices")
    parser.add_argument("--half", action="store_true", help="multiply in bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        minutes=options.minutes,
        batch=options.batch,
        rate=options.rate,
        noise=options.noise,
        deception=options.deception,
        matching=options.matching,
        likeness=options.likeness,
        strangers=options.strangers,
        half=options.half,
    )
    Sharpener(read_corpora(options.data), options.out, plan, options.start, options.encoder, options.seed).run()


if __name__ == "__main__":
    main()
