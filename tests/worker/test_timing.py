"""worker.sv2tts.timing and the mel frames of a chunk, on the bundle in service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from storage.streams.wire import Timing
from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import ENCODER_RATE, SpeakerEncoder
from worker.sv2tts.mel import N_MELS, SAMPLE_RATE
from worker.sv2tts.speech import Speech, SpeechChunk, SpeechModel
from worker.sv2tts.vocoder import Vocoder
from worker.text.phonemes import Phonemizer

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "bundles" / "base"
TEXTS = (
    "Yes.",
    "A",
    "No",
    "Well, that is $1.50, isn't it?",
    "Dr. Smith arrives at 9:30PM on June 5, 2024.",
    "Please visit https://example.com/help or mail info@example.com!",
    "“Really?” he asked — quietly.",
    "Great 🎉 news (for you).",
    "Internationalization notwithstanding, straightforward characteristics unfortunately demonstrated "
    "extraordinarily complicated responsibilities.",
    "1,234,567",
    '<break time="1s"/>Hello <b>you</b>',
    "5 - 10 people, i.e. a few",
    "Hm?",
    "...wait",
)
PAUSES = (
    "Well, that is not what I wanted to hear.",
    "No, I do not think so, but thank you.",
    "If it rains tomorrow, we will stay at home.",
    "First, open the box; second, close the door.",
)
LEAST_PAUSE_MS = 60
STEP = 120


@cache
def model(chunk_samples: int = 1920) -> SpeechModel:
    return SpeechModel(Bundle.load(BUNDLE), chunk_samples=chunk_samples)


@cache
def drawn(seed: int) -> NDArray[np.float32]:
    vector = np.abs(np.random.default_rng(seed).standard_normal(256)).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


@cache
def real(name: str) -> NDArray[np.float32]:
    samples, rate = soundfile.read(ROOT / "samples" / f"reference-{name}.wav", dtype="float32")
    return SpeakerEncoder(Bundle.load(BUNDLE)).embed(soxr.resample(samples, rate, ENCODER_RATE).astype(np.float32))


def chunks_of(speech: Speech) -> Iterator[SpeechChunk]:
    while True:
        chunk = speech.next_chunk()
        yield chunk
        if chunk.last:
            return


@cache
def alone(text: str, seed: int, *, mel: bool = False, chunk_samples: int = 1920) -> tuple[SpeechChunk, ...]:
    return tuple(chunks_of(model(chunk_samples).start(text, drawn(seed), mel=mel)))


def words_of(chunks: Sequence[SpeechChunk]) -> list[Timing]:
    return [timing for chunk in chunks for timing in chunk.words]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(2))
def test_every_sounding_word_is_told_once_in_order_within_the_audio(text: str, seed: int) -> None:
    """Starts and ends never fall, none lies outside of the sound, none is told before it was heard to its end, and all
    have come with the last chunk."""
    chunks = alone(text, seed)
    words = words_of(chunks)
    assert [timing.word for timing in words] == [span.word for span in Phonemizer().read(text).words]
    heard = 0
    for chunk in chunks:
        heard += len(chunk.pcm) // 2
        assert all(timing.end_ms <= heard * 1000 / SAMPLE_RATE for timing in chunk.words)
    times = [time for timing in words for time in (timing.start_ms, timing.end_ms)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert all(timing.end_ms > timing.start_ms for timing in words)


@pytest.mark.parametrize("text", [TEXTS[3], TEXTS[8]])
def test_a_word_comes_soon_after_it_was_said(text: str) -> None:
    """Words come while the sentence goes on: each at most half a second of sound after its end."""
    heard = 0
    for chunk in alone(text, 0):
        heard += len(chunk.pcm) // 2
        for timing in chunk.words:
            assert heard * 1000 / SAMPLE_RATE - timing.end_ms < 500 or chunk.last


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[4], TEXTS[9]])
@pytest.mark.parametrize("chunk_samples", [480, 4800])
def test_times_do_not_depend_on_the_length_of_chunks(text: str, chunk_samples: int) -> None:
    """Chunks of 20 or of 200 ms carry the same times and frames as those of 80."""
    one, other = (alone(text, 1, mel=True, chunk_samples=size) for size in (1920, chunk_samples))
    assert words_of(one) == words_of(other)
    assert b"".join(chunk.mel for chunk in one) == b"".join(chunk.mel for chunk in other)


asked = st.lists(
    st.tuples(st.sampled_from(TEXTS), st.integers(0, 1), st.integers(0, 8), st.booleans()), min_size=1, max_size=6
)
"""Text, voice, the step in which it joins, and whether it asks for mel frames."""


@settings(max_examples=12, deadline=None)
@given(sentences=asked, seed=st.integers(0, 1000))
def test_times_and_frames_are_the_same_in_whatever_company(
    sentences: Sequence[tuple[str, int, int, bool]], seed: int
) -> None:
    """Whoever is in the batch, and whoever asks for mel frames: every chunk is the one of the sentence alone."""
    draw = np.random.default_rng(seed)
    speeches: dict[int, Speech] = {}
    heard: dict[int, list[SpeechChunk]] = {number: [] for number in range(len(sentences))}
    now = 0
    while len(speeches) < len(sentences) or not all(speech.decoded for speech in speeches.values()):
        for number, (text, voice, joins_at, mel) in enumerate(sentences):
            if joins_at == now:
                speeches[number] = model().start(text, drawn(voice), mel=mel)
        batch = [number for number, speech in speeches.items() if not speech.decoded and draw.random() < 0.8]
        outcomes = model().advance([speeches[number] for number in batch]).outcomes
        for number, outcome in zip(batch, outcomes, strict=True):
            assert not isinstance(outcome, Exception)
            heard[number].extend(outcome)
        now += 1
    for number, (text, voice, _, mel) in enumerate(sentences):
        assert tuple(heard[number]) == alone(text, voice, mel=mel)


@pytest.mark.parametrize("name", ["high", "low"])
@pytest.mark.parametrize("text", PAUSES)
def test_words_beside_pauses_start_and_end_where_the_sound_does(name: str, text: str) -> None:
    """Around a silence within the sentence the word before ends, and the one behind starts, within 60 ms of where the
    wave falls silent and sounds again; the first starts and the last ends where the wave does."""
    chunks = tuple(chunks_of(model().start(text, real(name))))
    wave = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2").astype(np.float64) / 32768
    words = words_of(chunks)
    steps = np.sqrt(np.square(wave[: len(wave) // STEP * STEP].reshape(-1, STEP)).mean(axis=1))
    loud = steps > np.quantile(steps, 0.95) * 10 ** (-40 / 20)
    sounding = 5 * np.flatnonzero(loud)
    assert abs(words[0].start_ms - sounding[0]) < 60
    assert abs(words[-1].end_ms - sounding[-1] - 5) < 60
    checked = 0
    for before, behind in pairwise(words):
        middle = (before.end_ms + behind.start_ms) // 2
        if text.split()[before.word][-1] not in ",;" or loud[middle // 5]:
            continue
        silent_from, silent_to = sounding[sounding < middle][-1] + 5, sounding[sounding > middle][0]
        if silent_to - silent_from >= LEAST_PAUSE_MS:
            assert abs(before.end_ms - silent_from) < 60
            assert abs(behind.start_ms - silent_to) < 60
            checked += 1
    assert checked


@pytest.mark.parametrize("text", TEXTS)
def test_mel_frames_are_what_the_voice_is_made_of(text: str) -> None:
    """The frames of all chunks, in half precision, make the sound of the sentence when a vocoder is given them whole,
    and there is one for every ten milliseconds."""
    chunks = alone(text, 0, mel=True)
    frames = np.frombuffer(b"".join(chunk.mel for chunk in chunks), "<f2").reshape(-1, N_MELS).astype(np.float32)
    pcm = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2").astype(np.float64)
    assert 240 * len(frames) == len(pcm)
    again = np.clip(Vocoder(Bundle.load(BUNDLE)).start().push(frames, final=True), -1, 1) * 32767.0
    # Half precision moves a pitch by as little as it moves its frame, and a pitch adds up: levels, not waves.
    levels = [np.sqrt(np.square(wave.reshape(-1, 240)).mean(axis=1)) for wave in (pcm, again)]
    assert np.abs(levels[0] - levels[1]).mean() < 0.05 * levels[0].mean()


def test_frames_come_as_they_are_decoded_and_only_to_who_asked() -> None:
    """The first chunk brings the frames of the look-ahead as well, later ones a call's worth; nobody else gets any, and
    the sound is the same."""
    asked_for, plain = alone(TEXTS[4], 0, mel=True), alone(TEXTS[4], 0)
    sizes = [len(chunk.mel) // (2 * N_MELS) for chunk in asked_for]
    assert sizes[0] > 8
    assert set(sizes[1:]) <= {0, 4, 8}
    assert not any(chunk.mel for chunk in plain)
    assert [chunk.pcm for chunk in asked_for] == [chunk.pcm for chunk in plain]
    assert [chunk.words for chunk in asked_for] == [chunk.words for chunk in plain]
