"""One context by itself, between what is asked and what is told."""

from __future__ import annotations

import json

import pytest

from relay.dialects.elevenlabs.frames import name_context
from relay.dialects.elevenlabs.stream_face import StreamFace
from relay.dialects.elevenlabs.turns import Turn
from relay.errors import TextTooLong
from relay.speaking.commands import Cancel, End, Refuse
from relay.speaking.events import Cancelled
from storage.errors import IllegalTransition
from tests.relay.dialects.elevenlabs.desk import make_options


def make_turn() -> Turn:
    """One with a text."""
    turn = Turn("turn-1", name_context("a"), None, make_options())
    turn.write("Good morning. ")
    return turn


def test_the_reason_of_an_end_outlasts_the_clients_own_wish() -> None:
    """Who closes what has been cancelled for an error is still told of the error."""
    turn = make_turn()
    assert turn.cancel(TextTooLong(10, "message")) == [Cancel("turn-1")]
    assert turn.cancel() == []
    (frame,) = turn.tell(Cancelled("turn-1"))
    assert json.loads(frame)["error"] == "max_character_limit_exceeded"


def test_a_turn_ends_once() -> None:
    """It cannot be ended again, nor told of anything."""
    turn = make_turn()
    assert turn.finish() == [End("turn-1")]
    with pytest.raises(IllegalTransition):
        turn.finish()
    turn.tell(Cancelled("turn-1"))
    with pytest.raises(IllegalTransition):
        turn.tell(Cancelled("turn-1"))


def test_a_stream_that_is_given_up_hears_nothing_more() -> None:
    """What comes until the client has read why is not spoken, and not waited for."""
    face = StreamFace("voice", make_options())
    assert isinstance(face.hear("nonsense", 0.0)[0], Refuse)
    assert face.hear('{"text": "Good morning. "}', 0.0) == []
    assert face.tick(1000.0) == ()
