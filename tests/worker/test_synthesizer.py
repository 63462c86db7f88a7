"""The synthesizer of the base bundle: log-mel frames from phoneme ids and an embedding."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.synthesizer import Synthesizer, step_ceiling
from worker.text.phonemes import PAD, SYMBOLS, Phonemizer

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "bundles" / "base"
LONG = "She quickly opened the heavy wooden door and left."
TEXTS = ("Yes.", "A", "No", "Hm?", '"Well" -- (no); yes: so,,,!!!', "1987", "What time is it?", "and of the", LONG)

DIGEST = """
import hashlib, sys
from pathlib import Path
import numpy as np
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.synthesizer import Synthesizer
synthesizer = Synthesizer(Bundle.load(Path(sys.argv[1])))
utterance = synthesizer.start([0, 52, 156, 86, 61, 4, 0], np.full(256, 1 / 16, np.float32))
digest = hashlib.sha256()
while not utterance.finished:
    digest.update(utterance.step().tobytes())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    return Synthesizer(Bundle.load(BUNDLE))


def draw_voice(seed: int) -> NDArray[np.float32]:
    numbers = np.maximum(np.random.default_rng(seed).standard_normal(256), 0).astype(np.float32)
    return np.asarray(numbers / np.linalg.norm(numbers), np.float32)


def speak(synthesizer: Synthesizer, ids: list[int], voice: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    utterance, parts = synthesizer.start(ids, voice), []
    while not utterance.finished:
        parts.append(utterance.step())
    return parts


@pytest.mark.parametrize("text", TEXTS)
def test_speech_lasts_as_long_as_its_words(synthesizer: Synthesizer, text: str) -> None:
    """Whoever speaks, a piece takes between 35 and 200 ms a symbol, beyond 100 ms for its ends: nothing is cut short
    and nothing runs on."""
    ids = Phonemizer().ids(text)
    for seed in range(6):
        milliseconds = 10 * sum(len(part) for part in speak(synthesizer, ids, draw_voice(seed)))
        assert 35 * len(ids) <= milliseconds <= 100 + 200 * len(ids)
        assert milliseconds < 40 * step_ceiling(len(ids))


@pytest.mark.parametrize("seed", range(8))
def test_no_ids_can_make_it_speak_for_ever(synthesizer: Synthesizer, seed: int) -> None:
    """Any sequence of symbols, however senseless, ends within its ceiling of steps."""
    rng = np.random.default_rng(seed)
    ids = [PAD, *rng.choice(list(SYMBOLS.values()), size=int(rng.integers(1, 40))).tolist(), PAD]
    assert sum(len(part) for part in speak(synthesizer, ids, draw_voice(seed))) <= 4 * step_ceiling(len(ids))


def test_what_would_not_stop_is_cut_and_says_so(synthesizer: Synthesizer) -> None:
    """An utterance that comes to its ceiling before its last symbol ends there; others are not cut."""
    runaway, other = (synthesizer.start(Phonemizer().ids(LONG), draw_voice(0)) for _ in range(2))
    runaway._ceiling = 5
    frames = 0
    while not runaway.finished:
        frames += len(runaway.step())
    assert (frames, runaway.cut) == (20, True)
    while not other.finished:
        other.step()
    assert not other.cut


def test_frames_come_in_eights(synthesizer: Synthesizer) -> None:
    """The first call returns four frames, the others eight, the last what is left, and then there are none."""
    utterance, sizes = synthesizer.start(Phonemizer().ids(LONG), draw_voice(0)), []
    while not utterance.finished:
        sizes.append(len(utterance.step()))
    assert sizes[0] == 4
    assert set(sizes[1:-1]) == {8}
    assert sizes[-1] in (4, 8)
    assert utterance.step().shape == (0, 80)


@pytest.mark.parametrize("text", ["Yes.", "What time is it?", LONG])
def test_speech_starts_at_once(synthesizer: Synthesizer, text: str) -> None:
    """The voice is heard within 100 ms of the first frame."""
    frames = np.concatenate(speak(synthesizer, Phonemizer().ids(text), draw_voice(1)))
    level = frames[:, 2:60].mean(axis=1)
    assert int(np.argmax(level > np.quantile(level, 0.9) - 3.0)) < 10


@pytest.mark.parametrize("seed", range(6))
def test_attention_adds_up_to_the_time(synthesizer: Synthesizer, seed: int) -> None:
    """The attention of all symbols is worth the steps that are heard, also when the last call made one too many; that
    of a symbol that is done does not change any more."""
    ids = Phonemizer().ids("What time is it?")
    utterance, frames, done = synthesizer.start(ids, draw_voice(seed)), 0, list[float]()
    while not utterance.finished:
        frames += len(utterance.step())
        assert utterance.attend(0, len(done)) == done
        done = utterance.attend(0, utterance.symbols_done)
    assert utterance.symbols_done == len(ids)
    assert sum(utterance.attend(0, len(ids))) == pytest.approx(frames / 4, abs=1e-3)
    assert len(utterance.levels) == frames


def test_another_process_says_the_same(synthesizer: Synthesizer) -> None:
    """The same ids and voice give the same bits in another process."""
    parts = speak(synthesizer, [PAD, 52, 156, 86, 61, 4, PAD], np.full(256, 1 / 16, np.float32))
    other = subprocess.run(
        [sys.executable, "-c", DIGEST, str(BUNDLE)], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert other.stdout.strip() == hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def test_utterances_do_not_hear_each_other(synthesizer: Synthesizer) -> None:
    """Two utterances made in turn are the ones that are made alone."""
    asked = [(Phonemizer().ids("What time is it?"), draw_voice(1)), (Phonemizer().ids("Yes."), draw_voice(2))]
    alone = [np.concatenate(speak(synthesizer, ids, voice)) for ids, voice in asked]
    utterances = [synthesizer.start(ids, voice) for ids, voice in asked]
    parts: list[list[NDArray[np.float32]]] = [[], []]
    while not all(utterance.finished for utterance in utterances):
        for utterance, made in zip(utterances, parts, strict=True):
            made.append(utterance.step())
    for made, expected in zip(parts, alone, strict=True):
        np.testing.assert_array_equal(np.concatenate(made), expected)


def test_the_voice_makes_a_difference(synthesizer: Synthesizer) -> None:
    """Two embeddings say the same ids differently."""
    first, second = (
        np.concatenate(speak(synthesizer, Phonemizer().ids("Yes."), draw_voice(seed)))[:16] for seed in (1, 2)
    )
    assert float(np.abs(first - second).mean()) > 0.05


@pytest.mark.parametrize(("ids", "size"), [([], 256), ([PAD, 4, PAD], 255)])
def test_what_is_no_utterance_is_refused(synthesizer: Synthesizer, ids: list[int], size: int) -> None:
    """Nothing to say, or an embedding of another size, raises ValueError."""
    with pytest.raises(ValueError, match="needs ids"):
        synthesizer.start(ids, np.zeros(size, np.float32))


def test_a_batch_says_what_each_would_alone() -> None:
    """The graphs take any number of utterances at once, of unlike lengths, without one changing another."""
    encoder, decoder = (Bundle.load(BUNDLE).session(f"synthesizer_{name}") for name in ("encoder", "decoder"))
    asked = [Phonemizer().ids("What time is it?"), Phonemizer().ids("Yes.")]
    longest = max(len(ids) for ids in asked)
    padded = np.asarray([ids + [PAD] * (longest - len(ids)) for ids in asked], np.int64)
    voices = np.stack([draw_voice(1), draw_voice(2)])

    def run(rows: list[int], width: int) -> NDArray[np.float32]:
        lengths = np.asarray([len(asked[row]) for row in rows], np.int64)
        feed = {"ids": padded[rows, :width], "lengths": lengths, "embedding": voices[rows]}
        memory, keys, speaker = encoder.run(["memory", "keys", "speaker"], feed)
        state = {"memory": memory, "keys": keys, "speaker": speaker, "lengths": lengths}
        for tensor in decoder.get_inputs()[4:]:
            sizes = [{"batch": len(rows), "symbols": width}.get(size, size) for size in tensor.shape]
            state[tensor.name] = np.zeros(sizes, np.int64 if "int64" in tensor.type else np.float32)
        made = []
        for _ in range(5):
            mel, _, *rest = decoder.run(None, state)
            names = [output.name.removeprefix("next_") for output in decoder.get_outputs()[2:]]
            state |= dict(zip(names, rest, strict=True))
            made.append(mel)
        return np.concatenate(made, axis=1)

    together = run([0, 1], longest)
    for row, ids in enumerate(asked):
        np.testing.assert_allclose(together[row], run([row], len(ids))[0], atol=2e-3)
