"""`stream-input`: one socket is one text, spoken as it comes and to its end. Sans-I/O."""

from __future__ import annotations

from collections.abc import Sequence

from relay.audio.formats import Format
from relay.dialects.elevenlabs.frames import error_frame
from relay.dialects.elevenlabs.messages import Message, read_message, read_object
from relay.dialects.elevenlabs.options import Options
from relay.dialects.elevenlabs.refusals import close_code, close_reason
from relay.dialects.elevenlabs.turns import Turn, TurnState
from relay.doors.face import Close, Frame, Sent
from relay.errors import RelayError, RequestRefused, SentenceFailed
from relay.speaking.commands import Command, Open, Refuse, Resume
from relay.speaking.events import Event, Failed

CONTEXT = "stream"


class StreamFace:
    """The first message begins the text, an empty one ends it; any error ends the connection."""

    def __init__(self, voice: str, options: Options) -> None:
        self._voice = voice
        self._options = options
        self._turn: Turn | None = None
        self._heard_at: float | None = None
        self._given_up = False

    def greet(self) -> Sequence[Frame]:
        """The dialect says nothing first."""
        return ()

    def hear(self, raw: Frame, now: float) -> Sequence[Command]:
        """Raises InvalidMessage or TextTooLong."""
        self._heard_at = now
        if self._given_up or (self._turn is not None and self._turn.state is not TurnState.OPEN):
            return []
        try:
            message = read_message(read_object(raw))
            opened = [] if self._turn is not None else self._open(message)
            return [*opened, *self._follow(message)]
        except RelayError as error:
            return [self._give_up(error)]

    def sound_of(self, _: Open | Resume) -> tuple[Format, float] | None:
        """As the address and the first message said."""
        return None if self._turn is None else self._turn.sound

    def tell(self, event: Event) -> Sequence[Sent]:
        """The frames of the text; the last one is followed by the close that tells how it went."""
        if isinstance(event, Failed):
            unspoken = "" if self._turn is None else self._turn.unspoken
            frame = error_frame({}, event.error, final=False, unspoken=unspoken)
            return (frame, Close(close_code(event.error), close_reason(event.error)))
        if self._turn is None:
            return ()
        told: list[Sent] = list(self._turn.tell(event))
        if self._turn.state is TurnState.ENDED:
            told.append(Close(1000))
        return told

    def tick(self, now: float) -> Sequence[Command | Close]:
        """Who says nothing for too long has forgotten to end the text."""
        if self._heard_at is None:
            self._heard_at = now
        ended = self._given_up or (self._turn is not None and self._turn.state is not TurnState.OPEN)
        if ended or now - self._heard_at <= self._options.inactivity_s:
            return ()
        message = (
            f"no text came for {self._options.inactivity_s:g} s; a space keeps the stream open, an empty text ends it"
        )
        return (self._give_up(SentenceFailed("idle", message, retryable=True)),)

    def _open(self, message: Message) -> list[Command]:
        self._turn = Turn(CONTEXT, {}, message.settings, self._options)
        return self._turn.open(self._voice)

    def _follow(self, message: Message) -> list[Command]:
        assert self._turn is not None  # noqa: S101 - `hear` has opened it
        if message.settings is not None and message.settings != self._turn.settings:
            text = "`voice_settings` come with the first message and do not change"
            raise RequestRefused(400, "voice_settings_changed", text, field="voice_settings")
        if message.text == "" and not message.flush:
            return self._turn.finish()
        written = self._turn.write(message.text or "")
        return [*written, *self._turn.flush(alone=False)] if message.flush else written

    def _give_up(self, error: RelayError) -> Command:
        self._given_up = True
        return Refuse(None, error)
