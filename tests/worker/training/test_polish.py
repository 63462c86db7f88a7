"""worker.training.vocoder.polish with its pairs, its synthesis and its critic; they need the `training` extra."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

torch = pytest.importorskip("torch", reason="needs the `training` extra")
pytest.importorskip("onnx", reason="needs the `training` extra")

from worker.errors import TrainingError  # noqa: E402
from worker.sv2tts.mel import log_mel  # noqa: E402
from worker.training.dataset import Corpus, write_corpus  # noqa: E402
from worker.training.prompts import Prompts  # noqa: E402
from worker.training.render import write_shard  # noqa: E402
from worker.training.synthesizer.train import start_network  # noqa: E402
from worker.training.vocoder.export import Serving  # noqa: E402
from worker.training.vocoder.network import LOOK_AHEAD, VocoderNetwork  # noqa: E402
from worker.training.vocoder.pairs import Pairs, write_pairs  # noqa: E402
from worker.training.vocoder.polish import PairSampler, Polisher, audible_mel  # noqa: E402
from worker.training.vocoder.sounding import Sounding, crop_wave, predict_parts  # noqa: E402
from worker.training.weights import load_weights  # noqa: E402

ROOT = Path(__file__).parents[3]
BASE = ROOT / "bundles" / "base"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Some utterances of the teacher beside the base voice's account of them."""
    root = tmp_path_factory.mktemp("polish")
    prompts = Prompts(("The train to the coast leaves at half past seven.", "Please bring two lemons and some bread."))
    write_shard(root / "render", prompts, 1, 0.006, (0, 1), 3)
    write_corpus([root / "render"], BASE / "encoder.onnx", root / "pack")
    network = start_network(BASE / "synthesizer.safetensors").eval()
    corpus = Corpus.load(root / "pack")
    (root / "other").mkdir()
    with pytest.raises(TrainingError, match="0 utterances in the sources"):
        write_pairs([root / "other"], corpus, network, root / "pairs.npz", 4, 1)
    assert write_pairs([root / "render"], corpus, network, root / "pairs.npz", 4, 1) > 0
    return Pairs.read(root / "pairs.npz")


def test_a_pair_is_one_utterance_told_twice(pairs: Pairs) -> None:
    """The true mel is that of the recording, and what the synthesizer told follows it in time."""
    for number in range(len(pairs)):
        low, high = int(pairs.starts[number]), int(pairs.starts[number + 1])
        wav = pairs.wav[low * 240 : high * 240].astype(np.float32) / np.float32(32768)
        true, told = (mels[low:high].astype(np.float32) for mels in (pairs.true, pairs.told))
        assert np.abs(log_mel(wav) - true).mean() < 0.05
        loudness = np.corrcoef(true.mean(axis=1), told.mean(axis=1))[0, 1]
        assert loudness > 0.8


def test_what_the_training_hears_is_what_the_vocoder_says() -> None:
    """A recording comes out of the synthesis in PyTorch at its own pace and with its own spectrum."""
    samples, rate = soundfile.read(ROOT / "samples" / "reference-high.wav", dtype="float32")
    mel = torch.from_numpy(log_mel(np.asarray(soxr.resample(samples, rate, 24000), np.float32)))[None, :300]
    network = VocoderNetwork()
    load_weights(network, BASE / "vocoder.safetensors")
    serving = Serving(network)
    with torch.no_grad():
        wave = Sounding()(serving, predict_parts(serving, mel), np.random.default_rng(0))
    heard = log_mel(crop_wave(wave, 40, 200).numpy()[0])
    wanted = mel[0, 40:240].numpy()

    def distance(shift: int) -> float:
        return float(np.abs(heard[10:-10, :66] - np.roll(wanted, shift, axis=0)[10:-10, :66]).mean())

    assert distance(0) < 0.6
    assert distance(0) < min(distance(-2), distance(2))


def test_a_mel_of_a_wave_is_the_mel_that_is_used_everywhere(pairs: Pairs) -> None:
    """But for the frames at the ends, which need what is not there."""
    wav = pairs.wav[: 100 * 240].astype(np.float32) / np.float32(32768)
    ours = audible_mel(torch.from_numpy(wav)[None])[0].numpy()
    theirs = log_mel(wav)[:, :66]
    first = int(np.argmin([np.abs(ours[:50] - theirs[skip : skip + 50]).mean() for skip in range(5)]))
    assert np.abs(ours[:50] - theirs[first : first + 50]).mean() < 0.35


def test_a_crop_lies_where_its_wave_lies(pairs: Pairs) -> None:
    """The frames that are judged are those of the wave."""
    mels, waves = PairSampler([(pairs, 1.0)], np.random.default_rng(1)).draw()
    assert mels.shape == (8, 24 + 2 + 64 + 2 + LOOK_AHEAD, 80)
    assert waves.shape == (8, 64 * 240)
    for mel, wave in zip(mels.numpy(), waves.numpy(), strict=True):
        heard = log_mel(wave)[4:-4].mean(axis=1)
        assert np.corrcoef(heard, mel[26 + 4 : 26 + 60].mean(axis=1))[0, 1] > 0.7


def test_a_run_goes_on_where_it_stopped(pairs: Pairs, tmp_path: Path) -> None:
    """The step, the networks and the optimisers come back, and `export` can read the average."""
    start = BASE / "vocoder.safetensors"
    first = Polisher([(pairs, 1.0)], tmp_path, 1e-4, start, 1e-4, 1)
    first.run()
    second = Polisher([(pairs, 1.0)], tmp_path, 1e-4, tmp_path / "last.pt", 1e-4, 1)
    assert second.step == first.step == 1
    together = zip(first.network.parameters(), second.network.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in together)
    losses = second.advance()
    assert second.step == 2
    assert all(np.isfinite(value) for value in losses.values())


def test_a_loss_that_is_no_number_stops_the_run_before_the_weights_change(pairs: Pairs, tmp_path: Path) -> None:
    """The last checkpoint stays good."""
    polisher = Polisher([(pairs, 1.0)], tmp_path, 1.0, BASE / "vocoder.safetensors", 1e-4, 1)
    with torch.no_grad():
        polisher.network.envelopes.bias.fill_(float("nan"))
    before = polisher.network.enter.weight.clone()
    with pytest.raises(ArithmeticError, match="not finite at step 0"):
        polisher.advance()
    assert torch.equal(before, polisher.network.enter.weight)
