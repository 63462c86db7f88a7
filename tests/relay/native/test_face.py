"""relay.native.face: events in the words and frames of the native protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from relay.audio.encoding import make_encoder
from relay.audio.formats import parse_format
from relay.doors.face import Close, Frame
from relay.errors import InvalidMessage, NothingToSay, Refused
from relay.native.face import NativeFace
from relay.native.frames import HEADER, LAST_OF_SENTENCE, MEL, REST
from relay.speaking.commands import Open, Resume
from relay.speaking.events import Audio, Cancelled, Done, Draining, Event, Failed, Flushed, Opened, Word
from tests.relay.conftest import make_audio

VOICE = uuid4()
NOISE = np.random.default_rng(6).integers(-3000, 3000, 12 * 1920, dtype=np.int16).astype("<i2").tobytes()
CHUNKS = [NOISE[start : start + 3840] for start in range(0, len(NOISE), 3840)]


def begin(face: NativeFace, context: str = "c", number: int = 7, **wishes: object) -> dict[str, Any]:
    """Opens a context as a client asks for it, and returns what the client is told."""
    message = {"type": "open", "context": context, "voice": "v", **wishes}
    (command,) = face.hear(json.dumps(message), 0.0)
    assert isinstance(command, Open)
    (opened,) = face.tell(Opened(context, number, VOICE, 2, "token", command.manner))
    return read(opened)


def read(sent: Frame | Close) -> dict[str, Any]:
    assert isinstance(sent, str)
    return dict(json.loads(sent))


def speak(face: NativeFace, *, end: Event) -> list[Frame | Close]:
    """Twelve chunks of noise, and what follows them."""
    told: list[Frame | Close] = []
    for number, pcm in enumerate(CHUNKS):
        told.extend(face.tell(replace(make_audio(pcm), chunk=number, last=number == len(CHUNKS) - 1)))
    return [*told, *face.tell(end)]


def payload(frames: Sequence[Frame | Close]) -> bytes:
    return b"".join(frame[HEADER.size :] for frame in frames if isinstance(frame, bytes))


def test_a_context_is_told_what_its_audio_will_be() -> None:
    """Without a wish it is the samples themselves; a format has its rate and its media type."""
    face = NativeFace(80)
    plain = begin(face)
    assert (plain["format"], plain["sample_rate"], plain["media_type"], plain["speed"]) == (
        "pcm_24000",
        24_000,
        "audio/pcm",
        1.0,
    )
    assert plain["resume"] == "token"
    other = begin(face, "d", 8, format="ulaw_8000", speed=2)
    assert (other["format"], other["sample_rate"], other["media_type"], other["speed"]) == (
        "ulaw_8000",
        8000,
        "audio/basic",
        2.0,
    )


@pytest.mark.parametrize("name", ["pcm_24000", "pcm_8000", "wav_16000", "ulaw_8000", "mp3_24000_64", "opus_48000_32"])
@pytest.mark.parametrize("speed", [1.0, 1.5])
def test_the_frames_of_a_context_join_to_what_its_encoder_makes(name: str, speed: float) -> None:
    """Each chunk has its frame, and the rest comes before `done` in one that says so."""
    face = NativeFace(80)
    begin(face, format=name, speed=speed)
    told = speak(face, end=Done("c", 1, 1))
    encoder = make_encoder(parse_format(name), speed=speed)
    if not name.startswith("opus"):  # an Ogg stream has a random serial number
        assert payload(told) == b"".join(map(encoder.encode, CHUNKS)) + encoder.finish()
    headers = [HEADER.unpack(frame[:16]) for frame in told if isinstance(frame, bytes)]
    chunks = [header for header in headers if not header[1] & REST]
    assert [header[5] for header in chunks] == list(range(len(CHUNKS)))
    assert [header[1] for header in chunks] == [0] * (len(CHUNKS) - 1) + [LAST_OF_SENTENCE]
    assert all(header[1] == REST and header[3] == 7 for header in headers[len(CHUNKS) :])
    assert read(told[-1])["type"] == "done"


def test_plain_audio_has_no_rest() -> None:
    """Nothing is held back that was not changed."""
    face = NativeFace(80)
    begin(face)
    told = speak(face, end=Done("c", 1, 1))
    assert len(told) == len(CHUNKS) + 1
    assert payload(told) == NOISE


@pytest.mark.parametrize("end", [Cancelled("c"), Failed("c", NothingToSay())])
def test_after_its_end_no_frame_of_a_context_follows(end: Event) -> None:
    """What an encoder still holds of a cancelled context is thrown away with it."""
    face = NativeFace(80)
    begin(face, format="mp3_24000_64")
    told = speak(face, end=end)
    assert isinstance(told[-1], str)
    assert sum(isinstance(frame, bytes) for frame in told) == len(CHUNKS)


def test_each_context_has_an_encoder_of_its_own() -> None:
    """Two side by side in one format give what each gives alone, also one after the other under one id."""
    alone = NativeFace(80)
    begin(alone, format="mp3_24000_64")
    expected = payload(speak(alone, end=Done("c", 1, 1)))
    face = NativeFace(80)
    begin(face, "d", 8, format="mp3_24000_64")
    face.tell(replace(make_audio(CHUNKS[3]), context="d", number=8))
    for _ in range(2):
        begin(face, format="mp3_24000_64")
        assert payload(speak(face, end=Done("c", 1, 1))) == expected


def test_a_refused_wish_does_not_change_what_is_open() -> None:
    """An `open` under an id in use is an error; the context goes on in its own format."""
    face = NativeFace(80)
    begin(face)
    face.hear(json.dumps({"type": "open", "context": "c", "voice": "v", "format": "ulaw_8000"}), 0.0)
    told = face.tell(Failed("c", Refused("context_exists", "no"), ended=False))
    assert read(told[0])["context"] is None
    assert payload(speak(face, end=Done("c", 1, 1))) == NOISE


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        ({"format": "mp4_44100"}, "format"),
        ({"format": "pcm_44101"}, "format"),
        ({"format": 3}, "format"),
        ({"format": "x" * 10_000}, "format"),
        ({"speed": 0.1}, "speed"),
        ({"speed": 4.5}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"mel": 1}, "mel"),
    ],
)
def test_a_wish_that_cannot_be_met_names_its_field(wishes: dict[str, object], field: str) -> None:
    """Formats that there are not, and speeds that nobody understands."""
    message = {"type": "open", "context": "c", "voice": "v", **wishes}
    with pytest.raises(InvalidMessage) as caught:
        NativeFace(80).hear(json.dumps(message), 0.0)
    assert caught.value.field == field


def test_words_come_before_their_chunk_on_the_time_of_what_is_heard() -> None:
    """Twice as fast is half the time; places in the text stay."""
    face = NativeFace(80)
    begin(face, speed=2.0)
    audio = replace(make_audio(CHUNKS[0]), words=(Word("*naïve*", 4, 11, 1.0, 1.5),))
    words, frame = face.tell(audio)
    assert isinstance(frame, bytes)
    assert read(words) == {
        "type": "words",
        "context": "c",
        "sentence": 3,
        "words": [{"text": "*naïve*", "start": 4, "end": 11, "start_ms": 500, "end_ms": 750}],
    }


def test_mel_frames_come_in_a_frame_of_their_own() -> None:
    """With a flag, and how many there are where audio has its time."""
    face = NativeFace(80)
    begin(face, mel=True)
    mel = bytes(range(160)) * 5
    frame, audio = face.tell(replace(make_audio(CHUNKS[0], last=True, ttfa_ms=21), mel=mel))
    assert isinstance(frame, bytes)
    assert isinstance(audio, bytes)
    assert HEADER.unpack(frame[:16]) == (1, MEL | LAST_OF_SENTENCE, 5, 7, 3, 12)
    assert frame[16:] == mel
    assert HEADER.unpack(audio[:16]) == (1, LAST_OF_SENTENCE, 21, 7, 3, 12)


def test_a_resumed_context_may_be_told_in_another_way() -> None:
    """The wish comes with `resume`, since the new connection knows nothing of the old one."""
    message = {"type": "resume", "context": "c", "token": "t", "sentence": 3, "chunk": -1, "format": "alaw_8000"}
    face = NativeFace(80)
    (command,) = face.hear(json.dumps(message), 0.0)
    assert isinstance(command, Resume)
    assert (command.token, command.sentence, command.chunk) == ("t", 3, -1)
    (opened,) = face.tell(Opened("c", 9, VOICE, 2, "other", command.manner))
    assert read(opened)["format"] == "alaw_8000"


def test_what_is_not_heard_of_a_failed_context_is_told() -> None:
    """The span of its text; `retry_after_ms` only where there is one."""
    face = NativeFace(80)
    begin(face)
    (told,) = face.tell(Failed("c", Refused("overloaded", "later", retry_after_ms=300), unspoken=(3, 9)))
    assert read(told) == {
        "type": "error",
        "code": "overloaded",
        "message": "later",
        "field": None,
        "retryable": True,
        "retry_after_ms": 300,
        "context": "c",
        "unspoken": {"start": 3, "end": 9},
    }
    (told,) = face.tell(Failed(None, NothingToSay(), ended=False))
    assert "retry_after_ms" not in read(told)
    assert (read(told)["context"], read(told)["unspoken"]) == (None, None)


def test_flushes_and_the_end_of_the_relay_are_told() -> None:
    """In milliseconds, as every time of the protocol."""
    face = NativeFace(80)
    assert read(face.tell(Flushed("c", 3))[0]) == {"type": "flushed", "context": "c", "flush": 3}
    assert read(face.tell(Draining(1.5))[0]) == {"type": "draining", "within_ms": 1500}


def test_a_binary_message_is_refused() -> None:
    """Clients send text."""
    with pytest.raises(InvalidMessage):
        NativeFace(80).hear(b"\0", 0.0)


def test_audio_of_a_context_that_was_not_opened_is_a_fault() -> None:
    """Rather nothing than another context's audio."""
    with pytest.raises(KeyError):
        NativeFace(80).tell(make_audio(bytes(2)))
    assert isinstance(make_audio(b""), Audio)
