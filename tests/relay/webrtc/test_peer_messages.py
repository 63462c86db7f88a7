"""relay.webrtc.messages and relay.webrtc.tickets."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relay.errors import InvalidMessage, Refused, UnknownObject
from relay.native.frames import HEADER, LAST_OF_SENTENCE, MEL, encode_mel
from relay.speaking.events import Audio
from relay.webrtc.floor import Played, Playing
from relay.webrtc.messages import (
    Aside,
    Goodbye,
    Native,
    Ping,
    StartCapture,
    StopCapture,
    read_peer_message,
    show_note,
)
from relay.webrtc.tickets import MAX_TICKETS, TTL_S, Tickets


def test_messages_are_told_apart() -> None:
    """Pings are text, Pipecat's own messages are passed over, and what is ours goes to the native protocol."""
    assert read_peer_message("ping: 1700000000") == Ping()
    assert read_peer_message('{"type": "signalling", "message": {"type": "peerLeft"}}') == Goodbye()
    assert read_peer_message('{"type": "signalling", "message": {"type": "trackStatus"}}') == Aside()
    assert read_peer_message('{"label": "rtvi-ai", "type": "client-ready", "id": "1"}') == Aside()
    text = '{"type": "text", "context": "c", "text": "Hello."}'
    assert read_peer_message(text) == Native(text)


def test_the_microphone_is_asked_for_with_a_consent() -> None:
    """A start has a consent and a name; the other actions need nothing."""
    started = read_peer_message('{"type": "capture", "action": "start", "consent": "c1", "name": "Me"}')
    assert started == StartCapture(type="capture", action="start", consent="c1", name="Me")
    assert isinstance(read_peer_message('{"type": "capture", "action": "discard"}'), StopCapture)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"\0\1", None),
        ("{", None),
        ("[1]", None),
        ("[" * 100_000, None),
        ('{"type": "capture"}', "action"),
        ('{"type": "capture", "action": "pause"}', "action"),
        ('{"type": "capture", "action": "start", "name": "Me"}', "consent"),
        ('{"type": "capture", "action": "start", "name": "", "consent": "c"}', "name"),
        ('{"type": "text", "text": "' + "x" * 70_000 + '"}', None),
    ],
)
def test_what_cannot_be_read_is_refused(raw: str | bytes, field: str | None) -> None:
    """With the field at fault."""
    with pytest.raises(InvalidMessage) as caught:
        read_peer_message(raw)
    assert caught.value.field == field


@pytest.mark.parametrize(("kind", "field"), [("open", "format"), ("resume", "format"), ("open", "speed")])
def test_a_track_has_no_format_and_no_speed(kind: str, field: str) -> None:
    """They would change nothing that is heard, and the times of words."""
    with pytest.raises(InvalidMessage) as caught:
        read_peer_message(json.dumps({"type": kind, "context": "c", "voice": "v", field: 1}))
    assert caught.value.field == field


def test_a_context_without_a_voice_has_that_of_the_offer() -> None:
    """One that names its own keeps it."""
    read = read_peer_message('{"type": "open", "context": "c"}', "alloy")
    assert isinstance(read, Native) and json.loads(read.raw)["voice"] == "alloy"
    own = '{"type": "open", "context": "c", "voice": "v"}'
    assert read_peer_message(own, "alloy") == Native(own)


def test_mel_frames_have_a_header_like_audio() -> None:
    """16 bytes, of which the second field of 16 bits is the number of frames; then float16 [frames, 80]."""
    mel = np.arange(7 * 80, dtype="<f2").tobytes()
    message = encode_mel(Audio("c", 3, 2, 5, b"", True, 0.0, 0.0, 0, mel=mel))
    version, flags, frames, *names = HEADER.unpack(message[: HEADER.size])
    assert (version, flags, frames, names) == (1, MEL | LAST_OF_SENTENCE, 7, [3, 2, 5])
    assert np.frombuffer(message[HEADER.size :], "<f2").reshape(frames, 80)[6, 79] == 559


def test_notes_say_what_is_heard() -> None:
    """Times in milliseconds of the context's audio."""
    assert json.loads(show_note(Playing("c", 1, 1.23456))) == {
        "type": "playing",
        "context": "c",
        "number": 1,
        "at_ms": 1235,
    }
    assert json.loads(show_note(Played("c", 1))) == {"type": "played", "context": "c", "number": 1}


def test_a_ticket_opens_for_as_long_as_it_is_used() -> None:
    """Ten minutes after its last use it is unknown, as one that never was."""
    tickets = Tickets()
    name = tickets.issue("tr_key", {"voice": "v"}, 0.0)
    assert tickets.use(name, TTL_S - 1).key.get_secret_value() == "tr_key"
    assert tickets.use(name, 2 * TTL_S - 2).body == {"voice": "v"}
    with pytest.raises(UnknownObject):
        tickets.use(name, 3 * TTL_S)
    with pytest.raises(UnknownObject):
        tickets.use("other", 0.0)


def test_tickets_are_bounded() -> None:
    """Those that have expired make room."""
    tickets = Tickets()
    for _ in range(MAX_TICKETS):
        tickets.issue("tr_key", {}, 0.0)
    with pytest.raises(Refused):
        tickets.issue("tr_key", {}, 1.0)
    assert tickets.issue("tr_key", {}, TTL_S + 1)
