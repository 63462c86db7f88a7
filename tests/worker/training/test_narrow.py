"""worker.training.vocoder.narrow: the 16 kHz vocoder learns from the full one; needs the `training` extra."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the `training` extra")
pytest.importorskip("onnxscript", reason="needs the `training` extra")

from worker.errors import TrainingError  # noqa: E402
from worker.sv2tts.source import NARROW as GRID  # noqa: E402
from worker.training.vocoder.narrow import NAME, Distillation, NarrowServing  # noqa: E402
from worker.training.vocoder.network import FULL, LOOK_AHEAD, NARROW, VocoderNetwork  # noqa: E402
from worker.training.vocoder.teaching import CROP, Corpus, Teacher  # noqa: E402

BASE = Path(__file__).parents[3] / "bundles" / "base"


@pytest.fixture(scope="module")
def mels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of wavy mels."""
    folder = tmp_path_factory.mktemp("mels")
    time, bands = np.arange(3 * CROP)[:, None], np.arange(80)
    np.save(folder / "mels.npy", (np.sin(time / 9 + bands / 7) * 2 - 5).astype(np.float16))
    return folder


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    return Teacher(BASE / "vocoder.onnx")


def test_lessons_are_the_same_for_the_same_seed(mels: Path, teacher: Teacher) -> None:
    """A run that goes on after a kill gets the lessons that it would have had."""
    corpus = Corpus.read([f"{mels}:0.5", str(mels)])
    first, again, other = (teacher.prepare(corpus, (1, seed), 5) for seed in (2, 2, 3))
    assert len(first.mel) == 16
    assert first.harmonic.shape == (16, 2 * CROP, NARROW.knots)
    assert np.array_equal(first.harmonic, again.harmonic)
    assert not np.array_equal(first.mel, other.mel)


def test_a_folder_without_mels_is_named(tmp_path: Path) -> None:
    """An empty data folder is refused with what it should hold."""
    with pytest.raises(TrainingError, match=r"holds no mels: it takes mels\.npy"):
        Corpus.read([str(tmp_path)])


def test_both_sizes_look_as_far_ahead() -> None:
    """The streams count on one look-ahead for either vocoder."""
    assert sum(NARROW.ahead) == sum(FULL.ahead)


def test_the_network_is_what_the_stream_hears() -> None:
    """Pieces with caches give what the whole gives, and the last bins below 8 kHz fade to nothing."""
    torch.manual_seed(1)
    network = VocoderNetwork(NARROW).eval()
    serving = NarrowServing(network).eval()
    mel = torch.randn(1, 24, 80) - 5
    cache = torch.zeros(1, 6, sum(width for _, width in NARROW.cache_shapes()))
    with torch.no_grad():
        whole = serving(mel, cache)
        first = serving(mel[:, :10], cache)
        second = serving(mel[:, 10:], first[-1])
    assert torch.allclose(whole[0][:, LOOK_AHEAD:], torch.cat([first[0], second[0]], 1)[:, LOOK_AHEAD:], rtol=1e-3)
    assert whole[4].shape == (1, 48, GRID.bins)
    assert not whole[4][..., -1].any()


def test_a_run_learns_goes_on_and_exports(mels: Path, teacher: Teacher, tmp_path: Path) -> None:
    """The losses fall, a second process goes on from the checkpoint or, with another teacher, begins again from its
    weights, and the weights beside the graph can be gone on from."""
    corpus = Corpus.read([str(mels)])
    for steps in (25, 50):
        run = Distillation(tmp_path, None, steps, 2e-3, "one")
        run.learn_round(teacher, corpus)
    rows = np.loadtxt(tmp_path / "log.csv", delimiter=",")
    assert (rows[1, 1:] < rows[0, 1:]).all()
    assert Distillation(tmp_path, None, 60, 2e-3, "one").step == 50
    anew = Distillation(tmp_path, None, 60, 2e-3, "another")
    assert anew.step == 0
    kept = run.average.module.state_dict()["enter.weight"]
    assert torch.equal(anew.network.enter.weight, kept)
    run.export(tmp_path)
    assert {path.name for path in tmp_path.glob(f"{NAME}.*")} == {f"{NAME}.onnx", f"{NAME}.safetensors"}
    started = Distillation(tmp_path / "other", tmp_path / f"{NAME}.safetensors", 60, 2e-3, "one")
    assert torch.allclose(started.network.enter.weight, kept, atol=1e-3)
