"""Frames to learn from whose mels are the synthesizer's own.

    python -m worker.training.vocoder.distil --data DIR:share [--data ...] --synthesizer checkpoint.pt \
        --vocoder last.pt --out DIR --hours 0.75 --seed 1

The synthesizer says a packed utterance along its true alignment, mostly from its own history. What the vocoder network
hears in the true mel is the part to learn from what was said: smoother, but of the same shape.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from worker.sv2tts.mel import FLOOR
from worker.training.synthesizer.batches import Batch, iterate_batches
from worker.training.synthesizer.network import FRAMES_PER_STEP, Tacotron
from worker.training.synthesizer.train import read_corpora
from worker.training.vocoder.corpus import Frames, write_shards
from worker.training.vocoder.export import read_network
from worker.training.vocoder.network import LOOK_AHEAD, VocoderNetwork, empty_caches

BATCH = 16
OWN_HISTORY = 0.8
_ROUNDS = 2


def read_synthesizer(path: Path) -> Tacotron:
    """The averaged weights of a checkpoint."""
    network = Tacotron()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["average"])
    return network.eval()


def delay(frames: Tensor) -> Tensor:
    """What each step is fed [B, S, 80]: the last of the frames [B, 4 S, 80] of the step before."""
    return functional.pad(frames[:, FRAMES_PER_STEP - 1 :: FRAMES_PER_STEP], (0, 0, 1, 0))[:, :-1]


@torch.no_grad()
def say_batch(network: Tacotron, batch: Batch) -> Tensor:
    """Log-mels [B, T, 80] in the network's words, on the time axis of the true ones."""
    speaker = network.project_speaker(batch.embedding, batch.quality)
    memory = network.encoder(batch.ids, batch.lengths, speaker)
    truth = delay((batch.mels - network.mean) / network.scale)
    fed = truth
    for _ in range(_ROUNDS):
        said, _queries = network.decode(fed, memory, speaker, batch.alignment)
        own = (torch.rand(truth.shape[:2]) < OWN_HISTORY).unsqueeze(-1)
        fed = torch.where(own, delay(said), truth)
    said, _queries = network.decode(fed, memory, speaker, batch.alignment)
    spoken: Tensor = network.postnet(said) * network.scale + network.mean
    return spoken.clamp(min=float(np.log(FLOOR)))


@torch.no_grad()
def hear_parts(network: VocoderNetwork, mels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """F0 [B, T], 0 where unvoiced, harmonic and noise levels [B, 2 T, 128] that the network hears in log-mels."""
    padded = functional.pad(mels, (0, 0, 0, LOOK_AHEAD), value=float(np.log(FLOOR)))
    logits, voicing, harmonic, noise, _ = network(padded, empty_caches(len(mels)))
    f0 = network.decode_pitch(logits) * (voicing > 0)
    return f0[:, LOOK_AHEAD:], harmonic[:, 2 * LOOK_AHEAD :], noise[:, 2 * LOOK_AHEAD :]


def distil_frames(batches: Iterator[Batch], synthesizer: Tacotron, vocoder: VocoderNetwork) -> Iterator[Frames]:
    """Endless utterances."""
    for batch in batches:
        said = say_batch(synthesizer, batch)
        f0, harmonic, noise = hear_parts(vocoder, batch.mels)
        for row, steps in enumerate((batch.steps * FRAMES_PER_STEP).tolist()):
            columns = (said[row, :steps], f0[row, :steps], harmonic[row, : 2 * steps], noise[row, : 2 * steps])
            yield Frames(*(column.numpy() for column in columns))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Prepare frames of the synthesizer's for the vocoder's training.")
    parser.add_argument("--data", action="append", required=True, help="a packed corpus, with :share when not 1")
    parser.add_argument("--synthesizer", type=Path, required=True)
    parser.add_argument("--vocoder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=0.75)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpora, vocoder = read_corpora(options.data), read_network(options.vocoder)
    synthesizer = read_synthesizer(options.synthesizer)

    def distil(number: int) -> Iterator[Frames]:
        torch.manual_seed(options.seed + 1000 * number)
        batches = iterate_batches(corpora, BATCH, np.random.default_rng([options.seed, number]))
        return distil_frames(batches, synthesizer, vocoder)

    write_shards(options.out, f"distil-{options.seed}", distil, int(options.hours * 360_000))


if __name__ == "__main__":
    main()
