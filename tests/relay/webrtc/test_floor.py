"""relay.webrtc.floor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.speaking.events import Audio
from relay.webrtc.floor import FRAME_BYTES, PATIENCE_FRAMES, Floor, Played, Playing, Turn

CHUNK = 1920
RATE = 24_000


def tone(hertz: float, samples: int = CHUNK, start: int = 0) -> bytes:
    """A tone of half scale, whose phase goes on from chunk to chunk."""
    time = (start + np.arange(samples)) / RATE
    return (16_000 * np.sin(2 * np.pi * hertz * time)).astype("<i2").tobytes()


def chunk(number: int, pcm: bytes, *, last: bool = False, sentence: int = 0, index: int = 0) -> Audio:
    return Audio(f"c{number}", number, sentence, index, pcm, last, 0.0, 0.0, 0)


def drain(floor: Floor, frames: int = 1000) -> list[Turn]:
    """Turns until there is nothing left."""
    turns: list[Turn] = []
    while not floor.empty and len(turns) < frames:
        turns.append(floor.take())
    return [*turns, floor.take()]


def heard(turns: list[Turn]) -> npt.NDArray[np.int16]:
    return np.frombuffer(b"".join(turn.pcm for turn in turns if turn.pcm is not None), "<i2")


def pitch(sound: npt.NDArray[np.int16]) -> float:
    """The strongest frequency, Hz."""
    return float(np.argmax(np.abs(np.fft.rfft(sound))) * 48_000 / len(sound))


def test_a_sentence_comes_out_whole_and_at_twice_the_rate() -> None:
    """A tone stays a tone without a click, and nothing of its end is kept back by the resampler's filter."""
    floor = Floor()
    for index in range(25):
        floor.add(chunk(1, tone(440, start=index * CHUNK), last=index == 24))
    sound = heard(drain(floor))
    assert len(sound) == 25 * CHUNK * 2
    assert pitch(sound) == pytest.approx(440, abs=1)
    assert np.abs(np.diff(sound[200:-200].astype(int))).max() < 16_000 * 2 * np.pi * 440 / 48_000 * 1.05


def test_nothing_gives_silence_and_frames_always_have_20_ms() -> None:
    """An empty floor is silent; whatever is heard has 960 samples, the end of a sentence too."""
    floor = Floor()
    assert floor.take() == Turn(None)
    floor.add(chunk(1, tone(300, 700), last=True))
    assert [len(turn.pcm or b"") for turn in drain(floor)] == [FRAME_BYTES, FRAME_BYTES, 0]


def test_a_sentence_in_its_middle_is_not_cut_into_less_than_a_frame() -> None:
    """When the next chunk is late there is silence, and not a piece of a frame with a hole in it."""
    floor = Floor()
    floor.add(chunk(1, tone(300, 1000)))
    first = [floor.take() for _ in range(4)]
    assert [turn.pcm is None for turn in first] == [False, True, True, True]
    floor.add(chunk(1, tone(300, 2000, start=1000), last=True))
    sound = heard([*first, *drain(floor)])
    assert np.abs(np.diff(sound[200:5800].astype(int))).max() < 16_000 * 2 * np.pi * 300 / 48_000 * 1.05


def test_contexts_are_heard_one_after_the_other() -> None:
    """Chunks that arrive in turn are heard context by context, the one that was opened first before the other."""
    floor = Floor()
    for index in range(6):
        for number, hertz in ((1, 400), (2, 1000)):
            floor.add(chunk(number, tone(hertz, start=index * CHUNK), last=index == 5))
    floor.end("c1")
    floor.end("c2")
    turns = drain(floor)
    assert [note for turn in turns for note in turn.notes] == [
        Playing("c1", 1, 0.0),
        Played("c1", 1),
        Playing("c2", 2, 0.0),
        Played("c2", 2),
    ]
    sound = heard(turns)
    half = len(sound) // 2
    assert [pitch(sound[:half]), pitch(sound[half:])] == pytest.approx([400, 1000], abs=3)


def test_a_context_keeps_the_floor_until_it_has_ended_or_is_silent_for_too_long() -> None:
    """Between its sentences nobody interrupts it, but it cannot keep others waiting by saying nothing."""
    floor = Floor()
    floor.add(chunk(1, tone(400, 480), last=True))
    assert floor.take().pcm is not None
    floor.add(chunk(2, tone(1000, 480), last=True))
    waits = [floor.take() for _ in range(PATIENCE_FRAMES)]
    assert all(turn.pcm is None for turn in waits)
    assert floor.take().notes == (Playing("c2", 2, 0.0),)
    floor.add(chunk(1, tone(400, 480), last=True))
    floor.end("c2")
    assert floor.take().notes == (Played("c2", 2), Playing("c1", 1, 0.02))


def test_what_was_cancelled_is_not_heard_and_counted() -> None:
    """After `forget` nothing of the context comes, and the samples that were not heard are told."""
    floor = Floor()
    for index in range(10):
        floor.add(chunk(1, tone(400, start=index * CHUNK), last=index == 9))
    floor.add(chunk(2, tone(1000), last=True))
    for _ in range(5):
        floor.take()
    assert floor.forget(1) == 10 * CHUNK - 5 * 480
    assert pitch(heard(drain(floor))) == pytest.approx(1000, abs=20)
    assert floor.forget(1) == 0


def test_the_floor_is_bounded() -> None:
    """It says that it is full after 20 s, so that whoever fills it waits."""
    floor = Floor()
    for index in range(249):
        floor.add(chunk(1, tone(400), last=True, sentence=index))
        assert not floor.full
    floor.add(chunk(1, tone(400), last=True, sentence=249))
    assert floor.full
    floor.take()
    assert not floor.full
    floor.forget(1)
    assert floor.empty


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4000), st.booleans()), max_size=40), st.data())
@settings(deadline=None, max_examples=50)
def test_no_sample_is_lost_or_given_twice(pieces: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    """However chunks are long, and whenever they come, each context's samples are heard once."""
    floor, given_samples = Floor(), dict.fromkeys((1, 2, 3), 0)
    turns: list[Turn] = []
    for number, samples, last in pieces:
        floor.add(chunk(number, tone(500, samples), last=last))
        given_samples[number] += samples
        turns += [floor.take() for _ in range(data.draw(st.integers(0, 3)))]
    unheard = sum(floor.forget(number) for number in (1, 2, 3))
    frames = sum(turn.pcm is not None for turn in turns)
    # A sentence's last frame is filled up with silence, the resampler holds back what is less than a frame.
    assert abs(sum(given_samples.values()) - unheard - frames * 480) <= 480 * len(pieces)
    assert floor.empty and unheard <= sum(given_samples.values())
