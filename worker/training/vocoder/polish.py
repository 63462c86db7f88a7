"""The vocoder's adversarial stage: regression on parts finds the split of breath and tone, an adversary the rest.

    python -m worker.training.vocoder.polish --pairs FILE.npz[:share] [--pairs ...] --start WEIGHTS --run DIR \
        --minutes 40

Some of the mels are the synthesizer's own, so what is blurred in them is put right here, too. The weights at the start
stay an anchor: envelopes may move a little, pitch and voicing must not. Resumable, by the clock.
"""

import argparse
import copy
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from worker.sv2tts.mel import FLOOR, HOP_LENGTH, N_FFT, N_MELS, SAMPLE_RATE, WIN_LENGTH, filter_bank, hann
from worker.training import checkpoint
from worker.training.rivalry import adversary_loss, deception_loss, matching_loss
from worker.training.vocoder.critic import Critic
from worker.training.vocoder.export import Serving, read_network
from worker.training.vocoder.network import LOOK_AHEAD, VocoderNetwork
from worker.training.vocoder.objective import average
from worker.training.vocoder.pairs import Pairs
from worker.training.vocoder.sounding import Parts, Sounding, crop_wave, predict_parts
from worker.training.weights import load_weights

_WARM, _CROP, _MARGIN = 24, 64, 2
"""Frames of a crop before what is judged, of it, and on either side where synthesis is incomplete."""

_BATCH = 8
_TOLD = 0.35
"""The share of crops whose mel is the synthesizer's."""

_WARM_STEPS = 150
_SAVE_SECONDS = 90.0
_LOG_EVERY = 25
_AUDIBLE_BANDS = 66
"""Mel bands below 8 kHz: above, many recordings hold nothing."""

_SILENCE = float(np.log(FLOOR))
_FULL_SCALE = np.float32(32768)
_NAMES = ("mel", "anchor", "pitch", "critic", "deception", "matching")


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts beside deceiving the critic: its features, the mel of the result, and nearness to the start in
    envelopes and in pitch and voicing."""

    matching: float = 2.0
    mel: float = 1.0
    anchor: float = 0.8
    pitch: float = 0.3


class PairSampler:
    """Random crops: mels [B, WARM + MARGIN + CROP + MARGIN + LOOK_AHEAD, 80] and the waves [B, 240 CROP] to be heard
    from frame WARM + MARGIN on, both at a random level."""

    def __init__(self, sources: list[tuple[Pairs, float]], rng: np.random.Generator) -> None:
        self._pairs = [pairs for pairs, _ in sources]
        shares = np.asarray([share for _, share in sources])
        self._shares, self._rng = shares / shares.sum(), rng

    def draw(self) -> tuple[Tensor, Tensor]:
        """One batch."""
        crops = [self._crop() for _ in range(_BATCH)]
        mels, waves = (np.stack(column) for column in zip(*crops, strict=True))
        return torch.from_numpy(mels), torch.from_numpy(waves)

    def _crop(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        rng = self._rng
        pairs = self._pairs[int(rng.choice(len(self._pairs), p=self._shares))]
        number = int(rng.integers(len(pairs)))
        low, high = int(pairs.starts[number]), int(pairs.starts[number + 1])
        start = int(rng.integers(low, high - _CROP + 1))
        gain = np.float32(rng.uniform(-0.6, 0.5))
        mel = np.full((_WARM + _MARGIN + _CROP + _MARGIN + LOOK_AHEAD, N_MELS), _SILENCE, np.float32)
        places = start - _WARM - _MARGIN + np.arange(len(mel))
        there = (places >= low) & (places < high)
        source = pairs.told if rng.random() < _TOLD else pairs.true
        mel[there] = np.maximum(source[places[there]].astype(np.float32) + gain, _SILENCE)
        wave = pairs.wav[start * HOP_LENGTH : (start + _CROP) * HOP_LENGTH].astype(np.float32) / _FULL_SCALE
        return mel, wave * np.exp(gain)


def audible_mel(wave: Tensor) -> Tensor:
    """Log-mels [B, T, 66] of waves [B, N] at 24 kHz, frames that lie whole within them."""
    bank = torch.from_numpy(filter_bank(SAMPLE_RATE, N_FFT, N_MELS, 0.0, SAMPLE_RATE / 2)[:, :_AUDIBLE_BANDS])
    window = torch.from_numpy(hann(WIN_LENGTH))
    spectrum = torch.stft(
        wave, N_FFT, HOP_LENGTH, win_length=WIN_LENGTH, window=window, center=False, return_complex=True
    )
    return torch.log((spectrum.abs().transpose(1, 2) @ bank).clamp(min=FLOOR))


def anchor_losses(parts: Parts, first: Parts) -> tuple[Tensor, Tensor]:
    """How far envelopes (neper), and pitch and voicing (nats), are from what the first weights say."""
    logits, voicing, harmonic, noise = parts
    old_logits, old_voicing, old_harmonic, old_noise = first
    voiced = (old_voicing > 0).float()
    tones = average((harmonic - old_harmonic).abs().mean(-1), voiced.repeat_interleave(2, dim=1))
    drift = functional.kl_div(
        torch.log_softmax(logits, -1), torch.log_softmax(old_logits, -1), reduction="none", log_target=True
    ).sum(-1)
    onsets = functional.binary_cross_entropy_with_logits(voicing, torch.sigmoid(old_voicing))
    return tones + (noise - old_noise).abs().mean(), average(drift, voiced) + onsets


class Polisher:
    """The network, the one it started from, its critic, an optimiser for each side, and the moving average."""

    def __init__(
        self, sources: list[tuple[Pairs, float]], run: Path, minutes: float, start: Path, rate: float, seed: int
    ) -> None:
        self._run, self._minutes, self._rate, self._weights = run, minutes, rate, Weights()
        self.network = _read_start(start)
        self._serving, self._sounding = Serving(self.network), Sounding()
        self._first = copy.deepcopy(self._serving).eval().requires_grad_(False)
        self.critic, self.average = Critic(), copy.deepcopy(self.network).eval().requires_grad_(False)
        self._optimiser = torch.optim.AdamW(self.network.parameters(), lr=rate, betas=(0.8, 0.98))
        self._rival = torch.optim.AdamW(self.critic.parameters(), lr=2 * rate, betas=(0.5, 0.9))
        self._parts: checkpoint.Parts = {
            "network": self.network,
            "averaged": self.average,
            "critic": self.critic,
            "optimiser": self._optimiser,
            "rival": self._rival,
        }
        self.step, self.seconds = checkpoint.take_up(run / "last.pt", self._parts)
        torch.manual_seed(seed + self.step)
        self._rng = np.random.default_rng([seed, self.step, 5])
        self._sampler = PairSampler(sources, self._rng)

    def save(self) -> None:
        """Write the checkpoint; `average` in it is what `export` and `weights` read."""
        average = {f"module.{name}": value for name, value in self.average.state_dict().items()}
        checkpoint.write_checkpoint(self._run / "last.pt", self._parts, self.step, self.seconds, average=average)

    def advance(self) -> dict[str, float]:
        """One step of the critic and one of the network; their losses.

        Raises ArithmeticError, before the weights change, when a loss is not finite.
        """
        began, (mel, wave) = time.monotonic(), self._sampler.draw()
        self._set_rates()
        parts = predict_parts(self._serving, mel)
        made = crop_wave(self._sounding(self._serving, parts, self._rng), _WARM + _MARGIN, _CROP)
        critic = self._teach_critic(wave, made.detach())
        with torch.no_grad():
            first = predict_parts(self._first, mel)
        anchor, pitch = anchor_losses(parts, first)
        likeness = functional.l1_loss(audible_mel(made), audible_mel(wave))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            judged = self.critic(made)
            with torch.no_grad():
                wanted = self.critic(wave)
        deception, matching = deception_loss(judged), matching_loss(wanted, judged)
        weights, trust = self._weights, min(1.0, self.step / _WARM_STEPS)
        total = weights.mel * likeness + weights.anchor * anchor + weights.pitch * pitch
        self._minimise(total + trust * (deception + weights.matching * matching), self._optimiser, self.network)
        self._update_average()
        self.step += 1
        self.seconds += time.monotonic() - began
        values = (likeness, anchor, pitch, critic, deception, matching)
        return dict(zip(_NAMES, (value.item() for value in values), strict=True))

    def _teach_critic(self, real: Tensor, made: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = adversary_loss(self.critic(real), self.critic(made))
        self._minimise(loss, self._rival, self.critic)
        return loss.detach()

    def _minimise(self, loss: Tensor, optimiser: torch.optim.Optimizer, network: torch.nn.Module) -> None:
        if not torch.isfinite(loss):
            raise ArithmeticError(f"the loss is not finite at step {self.step}; the last checkpoint is kept")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()

    @torch.no_grad()
    def _update_average(self) -> None:
        weight = 1 - min(0.998, (1 + self.step) / (10 + self.step))
        for mean, value in zip(self.average.parameters(), self.network.parameters(), strict=True):
            mean.lerp_(value, weight)

    def _set_rates(self) -> None:
        """Down to a fifth over the last third of the time."""
        left = 3 * (1 - self.seconds / 60 / self._minutes)
        scale = min(1.0, max(0.2, left))
        for optimiser, rate in ((self._optimiser, self._rate), (self._rival, 2 * self._rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * scale

    def run(self) -> None:
        """Train until the minutes are spent; a line of `log.csv` every 25 steps."""
        saved = time.monotonic()
        with (self._run / "log.csv").open("a", newline="", encoding="utf-8") as file:
            log = csv.writer(file)
            while self.seconds < self._minutes * 60 or not self.step:
                losses = self.advance()
                if self.step % _LOG_EVERY == 0:
                    log.writerow([self.step, *(f"{value:.4f}" for value in losses.values()), f"{self.seconds:.0f}"])
                    file.flush()
                if time.monotonic() - saved > _SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
        self.save()


def _read_start(path: Path) -> VocoderNetwork:
    """A checkpoint's average or a bundle's weights."""
    if path.suffix == ".pt":
        return read_network(path).train().requires_grad_(True)
    network = VocoderNetwork()
    load_weights(network, path)
    return network


def read_pairs(arguments: list[str]) -> list[tuple[Pairs, float]]:
    """Pairs and shares of `FILE` or `FILE:share` arguments."""
    split = (argument.rpartition(":") if ":" in argument else (argument, "", "1") for argument in arguments)
    return [(Pairs.read(Path(path)), float(share)) for path, _, share in split]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the vocoder against an adversary.")
    parser.add_argument("--pairs", action="append", required=True, help="a file of pairs, with :share when not 1")
    parser.add_argument("--start", type=Path, required=True, help="a bundle's weights or a checkpoint")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.run.mkdir(parents=True, exist_ok=True)
    sources = read_pairs(options.pairs)
    Polisher(sources, options.run, options.minutes, options.start, options.rate, options.seed).run()


if __name__ == "__main__":
    main()
