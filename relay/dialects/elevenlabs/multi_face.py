"""`multi-stream-input`: several contexts on one socket, each with an id of its client's choice. Sans-I/O.

What a context's end means is told by what came before it (`close_context`, AsyncAPI of ElevenLabs): text that was
flushed is still spoken, text that was not is dropped. So voice agents, which close a context when their turn has ended
and when somebody interrupts it, get both; whoever closes a context twice has had enough of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from relay.audio.formats import Format
from relay.dialects.elevenlabs.frames import error_frame, name_context
from relay.dialects.elevenlabs.messages import Message, read_message, read_name, read_object
from relay.dialects.elevenlabs.options import Options
from relay.dialects.elevenlabs.refusals import close_code, close_reason
from relay.dialects.elevenlabs.turns import Turn, TurnState
from relay.doors.face import Close, Frame, Sent
from relay.errors import Refused, RelayError, RequestRefused, TextTooLong
from relay.speaking.commands import Command, Leave, Open, Refuse, Resume, Text
from relay.speaking.events import Event, Failed

MAX_OPEN = 5
"""Contexts that are not closed (ElevenLabs' own limit)."""
MAX_TURNS = 15
"""Contexts of a connection that are spoken, closed or not; one below what the core lets a connection have."""
MAX_WAITING_TEXT = 100_000
"""Characters for a context that waits for the one that had its id before."""

_FATAL = frozenset({"max_active_conversations", "voice_settings_changed"})
"""What ends the connection as well."""
_HOPELESS = frozenset({"unknown_voice", "voice_unavailable", "quota_exceeded"})
"""What every further context of this connection would meet too. After other errors it goes on: a client that begins its
next turn before it has read a close would lose that turn."""


class MultiFace:
    """Speaks in one voice, the address's."""

    def __init__(self, voice: str, options: Options) -> None:
        self._voice = voice
        self._options = options
        self._numbers = itertools.count(1)
        self._turns: dict[str, Turn] = {}
        self._named: dict[str | None, Turn] = {}
        self._strangers: dict[str, str | None] = {}
        self._waiting: dict[str, tuple[Turn, list[Command]]] = {}
        self._heard_at: float | None = None
        self._leaving = False

    def greet(self) -> Sequence[Frame]:
        """The dialect says nothing first."""
        return ()

    def hear(self, raw: Frame, now: float) -> Sequence[Command]:
        """Commands under names of our own: a client may use an id again while its first context is being spoken."""
        self._heard_at = now
        released = self._release()
        if self._leaving:
            return released
        name = None
        try:
            data: dict[str, Any] = read_object(raw)
            name = read_name(data)
            return [*released, *self._hear(read_message(data), now)]
        except RelayError as error:
            return [*released, *self._refuse(name, error)]

    def sound_of(self, command: Open | Resume) -> tuple[Format, float] | None:
        """As the address and the context's first message said."""
        turn = self._turns.get(command.context)
        return None if turn is None else turn.sound

    def tell(self, event: Event) -> Sequence[Sent]:
        """The frames of one context, and a close where the connection ends with it."""
        key: str | None = getattr(event, "context", None)
        turn = None if key is None else self._turns.get(key)
        if turn is None:
            return self._tell_stranger(event, key) if isinstance(event, Failed) else ()
        told: list[Sent] = list(turn.tell(event))
        if turn.state is TurnState.ENDED:
            self._forget(turn)
        verdict = event.error if isinstance(event, Failed) else turn.verdict
        if verdict is not None and turn.state is TurnState.ENDED and self._ends_all(verdict):
            told.append(Close(close_code(verdict), close_reason(verdict)))
        return told

    def tick(self, now: float) -> Sequence[Command | Close]:
        """Contexts that nothing was said in are closed, and a connection on which nothing is said."""
        if self._heard_at is None:
            self._heard_at = now
        commands: list[Command | Close] = [*self._release()]
        limit_s = self._options.inactivity_s
        for turn in list(self._turns.values()):
            if turn.state is TurnState.OPEN and now - turn.heard_at > limit_s:
                commands += self._put(turn, turn.finish() if turn.spoke else turn.cancel())
        if not self._turns and now - self._heard_at > limit_s and not self._leaving:
            self._leaving = True
            reason = f"nothing was said for {limit_s:g} s; an empty text keeps a connection open"
            commands.append(Close(1000, reason))
        return commands

    def _hear(self, message: Message, now: float) -> list[Command]:
        if message.close_socket:
            return self._leave()
        turn = self._named.get(message.context_id)
        if message.close_context:
            return [] if turn is None else self._close(turn)
        if turn is not None and turn.state is TurnState.OPEN:
            if message.settings is not None and message.settings != turn.settings:
                raise _settings_changed()
        elif not message.text:
            # A flush of what is not there, or a sign of life: no context begins with it.
            return []
        else:
            return self._open(message, turn, now)
        turn.heard_at = now
        return self._put(turn, self._write(turn, message))

    def _open(self, message: Message, before: Turn | None, now: float) -> list[Command]:
        """A new context; one that had the same id is spoken to its end first."""
        if sum(turn.state is TurnState.OPEN for turn in self._turns.values()) >= MAX_OPEN:
            raise Refused(
                "max_active_conversations",
                f"{MAX_OPEN} contexts of this connection are open, all that may be; close one with `close_context`",
                retryable=False,
            )
        commands = self._make_room()
        absolute = self._options.sync_alignment
        key, naming = f"turn-{next(self._numbers)}", name_context(message.context_id)
        turn = Turn(key, naming, message.settings, self._options, absolute=absolute)
        turn.heard_at = now
        self._turns[key] = self._named[message.context_id] = turn
        if before is not None:
            self._waiting[key] = (before, [])
        return [*commands, *self._put(turn, [*turn.open(self._voice), *self._write(turn, message)])]

    def _write(self, turn: Turn, message: Message) -> list[Command]:
        written = turn.write(message.text or "")
        return [*written, *turn.flush(alone=not (message.text or "").strip())] if message.flush else written

    def _close(self, turn: Turn) -> list[Command]:
        """Its place is free from now on, whatever of it is still to be heard."""
        if turn.state is TurnState.OPEN and turn.wants_its_end:
            return self._put(turn, turn.finish())
        return self._put(turn, turn.cancel())

    def _leave(self) -> list[Command]:
        """All that was said is spoken, then the connection ends."""
        self._leaving = True
        commands = [*self._release(everything=True)]
        for turn in self._turns.values():
            if turn.state is TurnState.OPEN:
                commands += turn.finish() if turn.spoke else turn.cancel()
        return [*commands, Leave(1000)]

    def _make_room(self) -> list[Command]:
        """Whoever has had its client turn away for longest makes place for the new one."""
        if len(self._turns) < MAX_TURNS:
            return []
        oldest = next((turn for turn in self._turns.values() if turn.is_spoken_out), None)
        message = f"{MAX_TURNS} contexts came after this one before it was spoken to its end"
        return [] if oldest is None else oldest.cancel(Refused("superseded", message, retryable=False))

    def _put(self, turn: Turn, commands: list[Command]) -> list[Command]:
        """What is to be done now; but for its beginning, a context waits for the one that had its id before."""
        if turn.key not in self._waiting:
            return commands
        _, waiting = self._waiting[turn.key]
        waiting += [command for command in commands if not isinstance(command, Open)]
        if sum(len(command.text) for command in waiting if isinstance(command, Text)) > MAX_WAITING_TEXT:
            del self._waiting[turn.key]
            return turn.cancel(TextTooLong(MAX_WAITING_TEXT, "context"))
        return [command for command in commands if isinstance(command, Open)]

    def _release(self, *, everything: bool = False) -> list[Command]:
        ready = [key for key, (turn, _) in self._waiting.items() if everything or turn.state is TurnState.ENDED]
        return [command for key in ready for command in self._waiting.pop(key)[1]]

    def _refuse(self, name: str | None, error: RelayError) -> list[Command]:
        """An error ends the context that it is about: what is spoken of it would not be what was to be said."""
        turn = self._named.get(name)
        if turn is not None and turn.state is TurnState.OPEN and error.code not in _FATAL:
            return self._put(turn, turn.cancel(error))
        key = f"refused-{next(self._numbers)}"
        self._strangers[key] = name
        return [Refuse(key, error)]

    def _tell_stranger(self, event: Failed, key: str | None) -> Sequence[Sent]:
        if key is not None and key not in self._strangers:
            # What the client has said meanwhile of a context that has ended.
            return ()
        name = self._strangers.pop(key) if key is not None else None
        frame = error_frame(name_context(name), event.error, final=False)
        if event.error.code in _FATAL:
            return (frame, Close(close_code(event.error), close_reason(event.error)))
        return (frame,)

    def _ends_all(self, error: RelayError) -> bool:
        return not self._turns and error.code in _HOPELESS

    def _forget(self, turn: Turn) -> None:
        del self._turns[turn.key]
        self._waiting.pop(turn.key, None)
        for name, named in list(self._named.items()):
            if named is turn:
                del self._named[name]


def _settings_changed() -> RelayError:
    message = "a context's `voice_settings` come with its first message and do not change; open another context"
    return RequestRefused(400, "voice_settings_changed", message, field="voice_settings")
