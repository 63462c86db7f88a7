"""The vocoder's synthesis once more, in PyTorch: what is said of the envelopes can be heard, and corrected by ear.

The same pulses, noise and overlap-add as in service (`worker.sv2tts.vocoder`). The sources have no gradient; pitch and
voicing are learnt elsewhere.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from worker.sv2tts.mel import HOP_LENGTH, hann
from worker.sv2tts.source import FULL, OVERLAP, PulseSource, noise_table
from worker.training.vocoder.export import Serving
from worker.training.vocoder.network import LOOK_AHEAD

_LEVELS_PER_FRAME = 2

Parts = tuple[Tensor, Tensor, Tensor, Tensor]
"""Pitch logits [B, T, 160], voicing logits [B, T], harmonic and noise levels [B, 2 T, knots], post-filters applied."""


def predict_parts(serving: Serving, mel: Tensor) -> Parts:
    """What the network says of log-mel frames [B, T + LOOK_AHEAD, 80], on the time axis of the first T."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, voicing, harmonic, noise, _ = serving.network(mel, serving.network.size.empty_caches(len(mel)))
    late = _LEVELS_PER_FRAME * LOOK_AHEAD
    return (
        logits.float()[:, LOOK_AHEAD:],
        voicing.float()[:, LOOK_AHEAD:],
        (harmonic.float() @ serving.clear_harmonic)[:, late:],
        (noise.float() @ serving.clear_noise)[:, late:],
    )


class Sounding(nn.Module):
    """Turns parts into waves, with random phases of pulses and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.window: Tensor
        self.out_window: Tensor
        self.noise: Tensor
        window = torch.from_numpy(hann(FULL.window))
        self.register_buffer("window", window)
        self.register_buffer("out_window", window / 1.5)
        self.register_buffer("noise", torch.from_numpy(noise_table(FULL)))

    def forward(self, serving: Serving, parts: Parts, rng: np.random.Generator) -> Tensor:
        """Waves [B, 240 (T - 1)] that begin at the centre of the first frame. The first and last three frames are
        incomplete: less overlaps there."""
        logits, voicing, harmonic, noise = parts
        with torch.no_grad():
            pulses = self._draw_pulses(serving.network.decode_pitch(logits), voicing > 0, rng)
            frames = pulses.unfold(1, FULL.window, FULL.hop) * self.window
            count = frames.shape[1]
            tones = torch.fft.rfft(frames, FULL.transform)
            first = int(rng.integers(len(self.noise)))
            hiss = self.noise[(torch.arange(count) + first) % len(self.noise)]
        # The window of the first whole frame is centred two hops after the first frame of the mel.
        kept = slice(OVERLAP // 2, OVERLAP // 2 + count)
        real, imaginary, level = serving.spectra(harmonic[:, kept], noise[:, kept])
        spectra = tones * torch.complex(real, imaginary) + hiss * level
        pieces = torch.fft.irfft(spectra, FULL.transform)[..., : FULL.window] * self.out_window
        length = (count - 1) * FULL.hop + FULL.window
        added = functional.fold(pieces.transpose(1, 2), (1, length), (1, FULL.window), stride=(1, FULL.hop))
        return added.reshape(len(added), length)

    @staticmethod
    def _draw_pulses(pitch: Tensor, voiced: Tensor, rng: np.random.Generator) -> Tensor:
        """[B, 240 (T - 1)]."""
        trains = []
        for hertz, on in zip(pitch.numpy(), voiced.numpy(), strict=True):
            trains.append(PulseSource(FULL, phase=float(rng.random())).extend(hertz, on))
        return torch.from_numpy(np.stack(trains))


def crop_wave(wave: Tensor, first: int, frames: int) -> Tensor:
    """The samples of `frames` mel frames from number `first`, of waves that begin with frame 0."""
    return wave[:, first * HOP_LENGTH : (first + frames) * HOP_LENGTH]
