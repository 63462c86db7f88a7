"""worker.sv2tts in batches: whoever is with a sentence, it is the sentence that it is alone, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from worker.errors import NonFinite
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.speech import Speech, SpeechChunk, SpeechModel

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "base"
TEXTS = (
    "Yes.",
    "A cup of tea.",
    "What time is it?",
    "She opened the heavy door.",
    "The first sound leaves before the sentence is finished.",
)
VOICES = 3
CHUNKS = (480, 1000, 1920, 4800)


@cache
def model(chunk_samples: int = 1920) -> SpeechModel:
    return SpeechModel(Bundle.load(BUNDLE), chunk_samples=chunk_samples)


def voice(seed: int) -> NDArray[np.float32]:
    vector = np.abs(np.random.default_rng(seed).standard_normal(256)).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def finish(speech: Speech) -> bytes:
    pcm = b""
    while True:
        chunk = speech.next_chunk()
        pcm += chunk.pcm
        if chunk.last:
            return pcm


@cache
def alone(text: str, seed: int) -> bytes:
    """The sentence by itself, in chunks longer than it."""
    return finish(model(10_000_000).start(text, voice(seed)))


sentences = st.lists(
    st.tuples(st.sampled_from(TEXTS), st.integers(0, VOICES - 1), st.integers(0, 12), st.sampled_from((None, 1, 4))),
    min_size=1,
    max_size=9,
)
"""Text, voice, the step in which it joins, and after how many steps it is cancelled."""


@settings(max_examples=25, deadline=None)
@given(asked=sentences, chunk_samples=st.sampled_from(CHUNKS), seed=st.integers(0, 1000))
def test_a_sentence_is_the_same_in_whatever_company(
    asked: Sequence[tuple[str, int, int, int | None]], chunk_samples: int, seed: int
) -> None:
    """Whoever joins when, is left out of a step or is cancelled, and however long the chunks are: every sample is the
    one of the sentence alone, and there are as many; what is cancelled was right as far as it came."""
    draw = np.random.default_rng(seed)
    speaker = model(chunk_samples)
    speeches: dict[int, Speech] = {}
    heard: dict[int, list[SpeechChunk]] = {number: [] for number in range(len(asked))}
    steps, gone, now = dict.fromkeys(heard, 0), set[int](), 0
    while len(gone) < len(asked):
        for number, (text, seed_of_voice, joins_at, _) in enumerate(asked):
            if joins_at == now:
                speeches[number] = speaker.start(text, voice(seed_of_voice))
        batch = [number for number in speeches if number not in gone and draw.random() < 0.8]
        draw.shuffle(batch)
        outcomes = speaker.advance([speeches[number] for number in batch]).outcomes
        for number, outcome in zip(batch, outcomes, strict=True):
            assert not isinstance(outcome, Exception)
            heard[number].extend(outcome)
            steps[number] += 1
            if speeches[number].decoded or steps[number] == asked[number][3]:
                gone.add(number)
        now += 1
    for number, (text, seed_of_voice, _, _) in enumerate(asked):
        pcm = b"".join(chunk.pcm for chunk in heard[number])
        whole = alone(text, seed_of_voice)
        complete = bool(heard[number]) and heard[number][-1].last
        assert pcm == (whole if complete else whole[: len(pcm)])
        assert {len(chunk.pcm) for chunk in heard[number][:-1]} <= {2 * chunk_samples}
        assert complete == speeches[number].decoded


def test_what_is_no_number_ends_one_sentence_only() -> None:
    """A voice with a NaN is refused when it begins; one that turns up in mid-sentence ends that sentence."""
    speaker = model()
    broken = voice(0).copy()
    broken[3] = np.nan
    with pytest.raises(NonFinite):
        speaker.start(TEXTS[0], broken)
    bad, good = speaker.start(TEXTS[3], voice(0)), speaker.start(TEXTS[3], voice(1))
    bad.utterance.rows["decoder_c"] = np.full_like(bad.utterance.rows["decoder_c"], np.nan)
    heard = b""
    for step in range(1000):
        both = speaker.advance([bad, good] if step == 0 else [good])
        if step == 0:
            assert isinstance(both.outcomes[0], NonFinite)
        outcome = both.outcomes[-1]
        assert not isinstance(outcome, Exception)
        heard += b"".join(chunk.pcm for chunk in outcome)
        if good.decoded:
            break
    assert heard == alone(TEXTS[3], 1)


def test_a_broken_stream_breaks_nobody_else() -> None:
    """When a call of the models raises for a batch, whoever is not to blame goes on as if nothing had been."""
    speaker = model()
    bad, good = speaker.start(TEXTS[1], voice(0)), speaker.start(TEXTS[1], voice(1))
    bad.utterance.rows["decoder_c"] = np.zeros(3, np.float32)
    first = speaker.advance([bad, good]).outcomes
    assert isinstance(first[0], Exception)
    assert not isinstance(first[1], Exception)
    assert b"".join(chunk.pcm for chunk in first[1]) + finish(good) == alone(TEXTS[1], 1)
