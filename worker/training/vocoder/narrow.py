"""The second, cheaper vocoder: 16 kHz inside, a smaller network that learns from the full one.

    python -m worker.training.vocoder.narrow --bundle bundles/base --mels DIR:share [--mels ...] --run DIR --minutes 30

Reads the bundle's `vocoder.onnx` as the teacher, goes on from the last checkpoint of the run's folder, and when it ends
puts `vocoder_16k.onnx` and `vocoder_16k.safetensors` into the bundle. When the teacher has changed, the run begins
again from the weights that it has; `--start` gives those of a bundle to a run that has none. `log.csv` in the run's
folder tells how it goes.
"""

import argparse
import csv
import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from worker.errors import TrainingError
from worker.sv2tts import source
from worker.training.half_weights import halve_weights
from worker.training.vocoder.export import Spectra, export_graph, split_cache
from worker.training.vocoder.network import NARROW, VocoderNetwork
from worker.training.vocoder.objective import WARM_UP, Losses, average, pitch_entropy
from worker.training.vocoder.teaching import Corpus, Lessons, Teacher
from worker.training.vocoder.train import learning_rate
from worker.training.weights import load_weights, save_weights

NAME = "vocoder_16k"
BATCH = 10
LESSONS_PER_ROUND = 640
STEPS_PER_ROUND = 400
SEED = 16
_FADE_HZ = 200.0
_AUDIBLE = -9.0
_VOICED_FROM = 0.5


class NarrowServing(nn.Module):
    """The narrow network as :class:`worker.training.vocoder.export.Serving`; the teacher's post-filters are in what it
    has learnt. The last 200 Hz below 8 kHz fade, because a spectrum that ends abruptly rings above its end."""

    def __init__(self, network: VocoderNetwork) -> None:
        super().__init__()
        self.network = network
        self.spectra = Spectra(source.NARROW, NARROW.knots)
        half = source.NARROW.rate / 2
        bins = torch.linspace(0, half, source.NARROW.bins)
        self.fade: Tensor
        self.register_buffer("fade", ((half - bins) / _FADE_HZ).clamp(0, 1))

    def forward(self, mel: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
        """See worker.training.vocoder.export."""
        logits, voicing, harmonic, noise, kept = self.network(mel, split_cache(self.network, cache))
        faded = (spectrum * self.fade for spectrum in self.spectra(harmonic, noise))
        return self.network.decode_pitch(logits), torch.sigmoid(voicing), *faded, torch.cat(kept, dim=-1)


def compare_lessons(said: tuple[Tensor, Tensor, Tensor, Tensor], lessons: Lessons) -> Losses:
    """How far the network is from the teacher. The harmonic part counts where there is voice on either side of it."""
    logits, voicing, tones, hiss = (part.float() for part in said)
    pitch, chance = torch.from_numpy(lessons.pitch), torch.from_numpy(lessons.voicing)
    harmonic, noise = torch.from_numpy(lessons.harmonic), torch.from_numpy(lessons.noise)
    judged = torch.zeros_like(pitch)
    judged[:, WARM_UP:] = 1
    voiced = functional.max_pool1d((chance > _VOICED_FROM).float()[:, None], 3, 1, 1)[:, 0]
    loud = 0.25 + 0.75 * (harmonic.amax(-1).maximum(noise.amax(-1)) > _AUDIBLE).float()
    twice = judged.repeat_interleave(2, dim=1) * loud
    doubt = functional.binary_cross_entropy_with_logits(voicing, chance, reduction="none")
    return Losses(
        pitch=average(pitch_entropy(logits, pitch), judged * (chance > _VOICED_FROM)),
        voicing=average(doubt, twice[:, ::2]),
        harmonic=average((tones - harmonic).abs().mean(-1), twice * (0.02 + voiced).repeat_interleave(2, dim=1)),
        noise=average((hiss - noise).abs().mean(-1), twice),
    )


class Distillation:
    """A run in progress: rounds of 400 steps, each on lessons of its own, stored between rounds."""

    def __init__(self, run: Path, start: Path | None, steps: int, rate: float, teacher: str) -> None:
        """`teacher` is the checksum of its graph."""
        torch.manual_seed(SEED)
        self.run, self.steps, self.rate, self.teacher, self.step = run, steps, rate, teacher, 0
        self.network = VocoderNetwork(NARROW)
        if start is not None:
            load_weights(self.network, start)
        self.average = AveragedModel(self.network, multi_avg_fn=get_ema_multi_avg_fn(0.998))  # type: ignore[no-untyped-call]
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
        if self.stored.exists():
            self._resume(torch.load(self.stored, map_location="cpu", weights_only=True))

    @property
    def stored(self) -> Path:
        """The checkpoint."""
        return self.run / "last.pt"

    def _resume(self, state: dict[str, Any]) -> None:
        """Go on where a run stopped; with another teacher only from what it had learnt."""
        self.average.load_state_dict(state["average"])
        if state.get("teacher") != self.teacher:
            self.network.load_state_dict(self.average.module.state_dict())
            return
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def learn_round(self, teacher: Teacher, corpus: Corpus) -> None:
        """Prepare lessons, take them, store what was learnt and write a line of figures.

        Raises TrainingError, with the checkpoint before it left alone, when what was learnt is not finite.
        """
        seed, steps = (SEED, self.step // STEPS_PER_ROUND), min(STEPS_PER_ROUND, self.steps - self.step)
        count = max(BATCH, LESSONS_PER_ROUND * steps // STEPS_PER_ROUND)
        lessons, rng = teacher.prepare(corpus, seed, count), np.random.default_rng((*seed, 1))
        losses = [
            self.advance(lessons.pick(rng.choice(len(lessons.pitch), BATCH, replace=False))).values()
            for _ in range(steps)
        ]
        if not np.isfinite(losses).all():
            raise TrainingError(
                f"{self.run} diverged after step {self.step - steps}; go on from there with a lower --rate"
            )
        self.save()
        with (self.run / "log.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([self.step, *(f"{value:.4f}" for value in np.mean(losses, axis=0))])

    def advance(self, lessons: Lessons) -> Losses:
        """One step of the optimizer."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.steps, self.rate)
        mel = torch.from_numpy(lessons.mel)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            said = self.network(mel, NARROW.empty_caches(len(mel)))[:4]
        losses = compare_lessons(said, lessons)
        self.optimizer.zero_grad(set_to_none=True)
        losses.total().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.average.update_parameters(self.network)
        self.step += 1
        return losses

    def save(self) -> None:
        """Store the run; the file is never half written."""
        part = self.stored.with_suffix(".part")
        state = {name: getattr(self, name).state_dict() for name in ("network", "average", "optimizer")}
        torch.save(state | {"step": self.step, "teacher": self.teacher}, part)
        part.rename(self.stored)

    def export(self, bundle: Path) -> None:
        """Put the averaged network into the bundle, as weights to go on from and as a graph of just those."""
        weights, graph = bundle / f"{NAME}.safetensors", bundle / f"{NAME}.onnx"
        save_weights(self.average.state_dict(), weights)
        weights.chmod(0o644)
        network = VocoderNetwork(NARROW).eval()
        load_weights(network, weights)
        export_graph(NarrowServing(network), network, graph)
        halve_weights(graph)


def run(options: argparse.Namespace) -> None:
    """Learn until the steps or the minutes are used up, then export."""
    options.run.mkdir(parents=True, exist_ok=True)
    graph = options.bundle / "vocoder.onnx"
    corpus, teacher = Corpus.read(options.mels), Teacher(graph)
    mark = hashlib.sha256(graph.read_bytes()).hexdigest()
    distillation = Distillation(options.run, options.start, options.steps, options.rate, mark)
    began = time.monotonic()
    while distillation.step < options.steps and time.monotonic() - began < options.minutes * 60:
        distillation.learn_round(teacher, corpus)
    distillation.export(options.bundle)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Distil the 16 kHz vocoder from the full one of a bundle.")
    parser.add_argument(
        "--bundle", type=Path, required=True, help="folder with vocoder.onnx; the result goes there too"
    )
    parser.add_argument("--mels", action="append", required=True, help="folder of mels, with :share when not 1")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="weights to begin from")
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    torch.set_num_threads(1)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
