"""worker.training.synthesizer.sharpen with its adversary and its listener; they need the `training` extra."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

torch = pytest.importorskip("torch", reason="needs the `training` extra")
pytest.importorskip("onnx", reason="needs the `training` extra")

from worker.sv2tts.bundle import Bundle  # noqa: E402
from worker.sv2tts.encoder import SpeakerEncoder  # noqa: E402
from worker.sv2tts.mel import log_mel  # noqa: E402
from worker.training.dataset import Corpus, write_corpus  # noqa: E402
from worker.training.prompts import Prompts  # noqa: E402
from worker.training.render import write_shard  # noqa: E402
from worker.training.rivalry import adversary_loss, deception_loss, matching_loss  # noqa: E402
from worker.training.synthesizer.adversary import Adversary, crop_valid  # noqa: E402
from worker.training.synthesizer.likeness import MelEncoder, likeness_loss  # noqa: E402
from worker.training.synthesizer.sharpen import Plan, Sharpener  # noqa: E402

ROOT = Path(__file__).parents[3]
BASE = ROOT / "bundles" / "base"


def _recording(name: str) -> np.ndarray:
    samples, rate = soundfile.read(ROOT / "samples" / f"reference-{name}.wav", dtype="float32")
    return np.asarray(soxr.resample(samples, rate, 24000), np.float32)


def test_the_listener_hears_in_a_log_mel_what_the_encoder_hears_in_the_recording() -> None:
    """The voiceprint of a mel is that of its recording, and not that of another person."""
    encoder, listener = SpeakerEncoder(Bundle.load(BASE)), MelEncoder(BASE / "encoder.onnx")
    heard, true = [], []
    for name in ("high", "low"):
        wav = _recording(name)
        true.append(encoder.embed(np.asarray(soxr.resample(wav, 24000, 16000), np.float32)))
        mels = torch.from_numpy(log_mel(wav))
        pieces = torch.stack([mels[start : start + 160] for start in range(0, len(mels) - 160, 80)])
        mean = listener(pieces).mean(dim=0).numpy()
        heard.append(mean / np.linalg.norm(mean))
    likeness = np.stack(heard) @ np.stack(true).T
    assert likeness.diagonal().min() > 0.95
    assert likeness[0, 1] < likeness.diagonal().min() - 0.1


def test_the_loss_of_likeness_falls_when_the_mel_is_of_the_speaker() -> None:
    """Its gradient reaches the mel."""
    listener = MelEncoder(BASE / "encoder.onnx")
    mels = {name: torch.from_numpy(log_mel(_recording(name)))[None, 50:210] for name in ("high", "low")}
    with torch.no_grad():
        embedding = listener(mels["high"])
        assert likeness_loss(listener, mels["high"], embedding) < 0.01 < likeness_loss(listener, mels["low"], embedding)
    other = mels["low"].clone().requires_grad_()
    likeness_loss(listener, other, embedding).backward()
    assert torch.isfinite(other.grad).all() and other.grad.abs().max() > 0


def test_the_adversary_learns_to_tell_speech_from_its_average() -> None:
    """After a few steps it scores rough mels above smooth ones, and the smooth ones are told how to change."""
    torch.manual_seed(1)
    adversary = Adversary(embedding=8)
    optimiser = torch.optim.Adam(adversary.parameters(), lr=1e-3)
    voices = torch.nn.functional.normalize(torch.randn(6, 8), dim=1)

    def smooth_out(rough: Any) -> Any:
        return torch.nn.functional.avg_pool1d(rough, 9, stride=1, padding=4)

    for _ in range(25):
        rough = torch.randn(6, 64, 80)
        loss = adversary_loss(adversary(rough, voices), adversary(smooth_out(rough), voices))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    rough = torch.randn(6, 64, 80)
    smooth = smooth_out(rough).requires_grad_()
    made = adversary(smooth, voices)
    assert all(real[0].mean() > fake[0].mean() + 0.2 for real, fake in zip(adversary(rough, voices), made, strict=True))
    (deception_loss(made) + matching_loss(adversary(rough, voices), made)).backward()
    assert smooth.grad.abs().max() > 0


def test_a_crop_takes_the_same_stretch_of_what_was_said_and_what_should_have_been() -> None:
    """Rows that are too short are left out, and nothing past a row's end is taken."""
    frames = torch.arange(3 * 20.0).reshape(3, 20, 1).expand(-1, -1, 80)
    (one, other), rows = crop_valid((frames, -frames), torch.tensor([20, 4, 12]), 8)
    assert rows.tolist() == [0, 2]
    assert torch.equal(one, -other)
    assert one.shape == (2, 8, 80)
    assert one[1].max() < 2 * 20 + 12


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A dozen utterances of the teacher."""
    root = tmp_path_factory.mktemp("sharpen")
    prompts = Prompts(("The train to the coast leaves at half past seven.", "Please bring two lemons and some bread."))
    write_shard(root / "render", prompts, 1, 0.006, (0, 1), 3)
    write_corpus([root / "render"], BASE / "encoder.onnx", root / "pack")
    return Corpus.load(root / "pack")


def _plan() -> Plan:
    shares = {"deception": 0.3, "matching": 0.5, "likeness": 1.0, "strangers": 0.5}
    return Plan(minutes=1e-4, batch=4, rate=1e-4, noise=0.2, half=False, **shares)


def test_a_run_goes_on_where_it_stopped(corpus: Corpus, tmp_path: Path) -> None:
    """The step, both networks and both optimisers come back from the checkpoint."""
    start = BASE / "synthesizer.safetensors"
    first = Sharpener([(corpus, 1.0)], tmp_path, _plan(), start, BASE / "encoder.onnx", 0)
    first.run()
    second = Sharpener([(corpus, 1.0)], tmp_path, _plan(), start, BASE / "encoder.onnx", 0)
    assert second.step == first.step == 1
    pairs = [(first.network, second.network), (first.average, second.average), (first.adversary, second.adversary)]
    for one, other in pairs:
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    losses = second.advance()
    assert second.step == 2
    assert all(np.isfinite(value) for value in losses.values())


def test_a_loss_that_is_no_number_stops_the_run_before_the_weights_change(corpus: Corpus, tmp_path: Path) -> None:
    """The checkpoint stays as good as it was."""
    sharpener = Sharpener(
        [(corpus, 1.0)], tmp_path, _plan(), BASE / "synthesizer.safetensors", BASE / "encoder.onnx", 0
    )
    with torch.no_grad():
        sharpener.network.projection.bias[0] = float("nan")
    before = sharpener.network.projection.weight.clone()
    with pytest.raises(ArithmeticError, match="not finite at step 0"):
        sharpener.advance()
    assert torch.equal(before, sharpener.network.projection.weight)
