"""worker.sv2tts.speech, on the bundle in service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.errors import NothingToSay
from worker.sv2tts.bundle import CHUNK_SAMPLES, Bundle
from worker.sv2tts.speech import Speech, SpeechModel

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "base"
TEXT = "The first sound leaves before the sentence is finished."


@pytest.fixture(scope="module")
def model() -> SpeechModel:
    return SpeechModel(Bundle.load(BUNDLE))


@pytest.fixture(scope="module")
def embedding() -> NDArray[np.float32]:
    vector = np.abs(np.random.default_rng(7).standard_normal(256)).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def _rest(speech: Speech) -> list[bytes]:
    """The PCM of every chunk that is left."""
    chunks = []
    while True:
        chunk = speech.next_chunk()
        chunks.append(chunk.pcm)
        if chunk.last:
            return chunks


def test_the_first_chunk_is_there_while_the_decoder_still_has_steps_to_go(
    model: SpeechModel, embedding: NDArray[np.float32]
) -> None:
    """Speech streams from inside the sentence: most of it is not decoded when its first 80 ms are out."""
    speech = model.start(TEXT, embedding)
    first = speech.next_chunk()
    assert len(first.pcm) == 2 * CHUNK_SAMPLES
    assert not first.last
    assert not speech.decoded
    rest = _rest(speech)
    assert speech.decoded
    assert len(rest) > 10


def test_every_chunk_but_the_last_is_whole(model: SpeechModel, embedding: NDArray[np.float32]) -> None:
    """80 ms each; the last has at least one sample and at most as many."""
    *whole, last = _rest(model.start(TEXT, embedding))
    assert {len(pcm) for pcm in whole} == {2 * CHUNK_SAMPLES}
    assert 0 < len(last) <= 2 * CHUNK_SAMPLES


def test_interleaved_sentences_do_not_touch_each_other(model: SpeechModel, embedding: NDArray[np.float32]) -> None:
    """Two sentences in two voices, chunk by chunk in turn on one model, are what each is alone."""
    other = np.roll(embedding, 1)
    alone = [_rest(model.start(TEXT, embedding)), _rest(model.start("Quite another text.", other))]
    speeches = [model.start(TEXT, embedding), model.start("Quite another text.", other)]
    together: list[list[bytes]] = [[], []]
    open_ones = {0, 1}
    while open_ones:
        for number in sorted(open_ones):
            chunk = speeches[number].next_chunk()
            together[number].append(chunk.pcm)
            if chunk.last:
                open_ones.remove(number)
    assert together == alone


def test_another_process_says_the_same_bit_for_bit(model: SpeechModel, embedding: NDArray[np.float32]) -> None:
    """Whoever takes over a sentence continues it exactly."""
    program = (
        "import sys, numpy as np; from pathlib import Path; from worker.sv2tts.bundle import Bundle;"
        "from worker.sv2tts.speech import SpeechModel;"
        "speech = SpeechModel(Bundle.load(Path(sys.argv[1]))).start("
        "sys.argv[2], np.frombuffer(bytes.fromhex(sys.argv[3]), np.float32))\n"
        "while True:\n"
        "    chunk = speech.next_chunk(); sys.stdout.buffer.write(chunk.pcm)\n"
        "    if chunk.last: break\n"
    )
    command = [sys.executable, "-c", program, str(BUNDLE), TEXT, embedding.tobytes().hex()]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"".join(_rest(model.start(TEXT, embedding)))


@pytest.mark.parametrize("text", ["", "🎉", "...", "-", "你好", "—"])
def test_what_has_no_sound_is_said_to_have_none(model: SpeechModel, embedding: NDArray[np.float32], text: str) -> None:
    """No text raises anything but NothingToSay, and none becomes noise."""
    with pytest.raises(NothingToSay):
        model.start(text, embedding)


@pytest.mark.parametrize("text", ["A", "I.", "Yes.", "Okay?", "1,000.50", "C++ & C#", "naïve café", "x" * 200])
def test_short_and_odd_texts_are_spoken_to_their_end(
    model: SpeechModel, embedding: NDArray[np.float32], text: str
) -> None:
    """One letter, one word, symbols and a word of 200 letters: some sound, and an end."""
    pcm = b"".join(_rest(model.start(text, embedding)))
    samples = np.frombuffer(pcm, "<i2")
    assert 0.1 * 24_000 < len(samples) < 60 * 24_000
    assert np.abs(samples.astype(np.int32)).max() > 300
