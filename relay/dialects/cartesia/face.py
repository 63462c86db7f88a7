"""Cartesia's WebSocket, sans-I/O: its messages become commands, events become its frames.

An error that names a context has ended it: Cartesia's clients take it so, and nothing of the context follows. Our own
contexts have names that no client sees, a new one each time, so that nothing of an id's past reaches its next user.
"""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from uuid import uuid4

from relay.audio.formats import Format
from relay.dialects.cartesia import frames
from relay.dialects.cartesia.contexts import Context, State, Stretch
from relay.dialects.cartesia.messages import Cancellation, Generation, find_context, read_message
from relay.dialects.cartesia.styles import read_style
from relay.doors.face import Close
from relay.errors import InvalidMessage, NothingToSay, RelayError
from relay.speaking.commands import Cancel, Command, End, Flush, Open, Refuse, Resume, Text
from relay.speaking.events import (
    Audio,
    Cancelled,
    Done,
    Draining,
    Event,
    Failed,
    Flushed,
    Opened,
    SentenceBegun,
    SentenceEnded,
)

MAX_SILENT = 64
"""Contexts that have fallen silent and are remembered, for each connection."""
MAX_OVER = 256
"""Ids that are remembered when their context is over, so that it is not ended twice."""


class CartesiaFace:
    """A Face; one a connection."""

    def __init__(self) -> None:
        self.request = str(uuid4())
        """The connection's name in errors."""
        self._contexts: dict[str, Context] = {}
        self._stretches: dict[str, Stretch] = {}
        self._answers: dict[str, frames.Frame | None] = {}
        self._over: OrderedDict[str, None] = OrderedDict()
        self._unwanted: list[Command] = []
        self._names = itertools.count(1)

    def greet(self) -> Sequence[str]:
        """Nothing: the client speaks first."""
        return ()

    def hear(self, raw: str | bytes, now: float) -> Sequence[Command]:
        """What a message asks for; one that cannot be read ends the context that it names."""
        try:
            message = read_message(raw)
        except RelayError as error:
            return list(self._refuse(find_context(raw), error))
        if isinstance(message, Cancellation):
            return list(self._cancel(message.context))
        try:
            return list(self._generate(message, now))
        except RelayError as error:
            return list(self._refuse(message.context, error))

    def sound_of(self, command: Open | Resume) -> tuple[Format, float] | None:
        """As the context's first message said."""
        stretch = self._stretches.get(command.context)
        return None if stretch is None else (stretch.context.style.sound.format, stretch.context.style.speed)

    def tell(self, event: Event) -> Sequence[str]:
        """An event as frames."""
        return [json.dumps(frame) for frame in self._tell(event)]

    def tick(self, now: float) -> Sequence[Command | Close]:
        """Speak what has been held for long enough; let contexts that are all heard give their places back."""
        commands, self._unwanted = self._unwanted, []
        for context in list(self._contexts.values()):
            stretch = context.stretch
            if context.state is not State.SPEAKING or stretch is None:
                continue
            if stretch.is_held_too_long(now):
                stretch.flush(None)
                commands.append(Flush(stretch.name))
            elif stretch.is_silent(now):
                commands.append(self._silence(context, stretch))
        return commands

    def _generate(self, message: Generation, now: float) -> Iterator[Command]:
        context = self._contexts.get(message.context)
        if message.blank:
            yield from self._mark(message, context)
            return
        if context is None:
            context = self._remember(Context(message.context, read_style(message.wanted, raw_only=True)))
        elif context.state is State.ENDING:
            raise InvalidMessage(
                "the context's text has ended with `continue`: false; use another `context_id`", field="context_id"
            )
        else:
            context.style.check_same(message.wanted)
        stretch = context.stretch
        if stretch is None:
            stretch = context.speak(self._name(), now)
            self._stretches[stretch.name] = stretch
            yield Open(stretch.name, context.style.voice, speed=context.style.speed)
        stretch.take(message.text, now)
        yield Text(stretch.name, message.text)
        at_once = message.more and context.style.buffer_delay_s == 0
        yield from self._punctuate(context, stretch, flush=message.flush or at_once, more=message.more)

    def _mark(self, message: Generation, context: Context | None) -> Iterator[Command]:
        """A message without words: white space, a flush, the end. Its other fields count for nothing."""
        if context is None:
            # A flush of what is not there would open a context that nobody ends.
            if not message.more and message.context not in self._over:
                self._note_end(message.context)
                failure = NothingToSay()
                yield self._answer(frames.error(failure, message.context, self.request, quiet=True), failure)
            return
        stretch = context.stretch
        if context.state is State.SPEAKING and stretch is not None:
            if message.text:
                stretch.take(message.text, 0.0)
                yield Text(stretch.name, message.text)
            yield from self._punctuate(context, stretch, flush=message.flush, more=message.more)
        elif context.state is State.SILENT:
            yield from self._answer_silent(context, message)

    def _punctuate(self, context: Context, stretch: Stretch, *, flush: bool, more: bool) -> Iterator[Command]:
        if flush:
            stretch.flush(context.count_flush())
            yield Flush(stretch.name)
        if not more:
            context.move(State.ENDING)
            yield End(stretch.name)

    def _answer_silent(self, context: Context, message: Generation) -> Iterator[Command]:
        """All was spoken: what is asked for is done already."""
        if message.flush:
            context.flushed = context.count_flush()
            yield self._answer(frames.flush_done(context.id, context.flushed), NothingToSay())
        if not message.more:
            self._forget(context)
            failure = NothingToSay()
            end = frames.done(context.id) if context.spoke else frames.error(failure, context.id, self.request)
            yield self._answer(end, failure)

    def _refuse(self, context: str | None, error: RelayError) -> Iterator[Command]:
        if context is not None:
            yield from self._drop(context)
        yield self._answer(frames.error(error, context, self.request), error)

    def _answer(self, frame: frames.Frame, error: RelayError) -> Command:
        """Has a frame told in its turn, after what has been asked for before."""
        name = self._name()
        self._answers[name] = frame
        return Refuse(name, error)

    def _cancel(self, id: str) -> Iterator[Command]:
        """Nothing of the id is told any more, not even why something of it was refused."""
        for name, frame in self._answers.items():
            if frame is not None and frame["context_id"] == id:
                self._answers[name] = None
        yield from self._drop(id)

    def _drop(self, id: str) -> Iterator[Command]:
        """Nothing of a context is told any more."""
        context = self._contexts.get(id)
        if context is None:
            return
        stretch = context.stretch
        self._forget(context)
        if stretch is not None:
            yield Cancel(stretch.name)

    def _silence(self, context: Context, stretch: Stretch) -> Command:
        context.fall_silent()
        return End(stretch.name) if stretch.samples else Cancel(stretch.name)

    def _remember(self, context: Context) -> Context:
        self._over.pop(context.id, None)
        self._contexts[context.id] = context
        silent = [known for known in self._contexts.values() if known.state is State.SILENT and known is not context]
        for oldest in silent[:-MAX_SILENT]:
            self._forget(oldest)
        return context

    def _forget(self, context: Context) -> None:
        context.move(State.OVER)
        del self._contexts[context.id]
        self._stretches = {name: other for name, other in self._stretches.items() if other.context is not context}
        self._note_end(context.id)

    def _note_end(self, id: str) -> None:
        self._over[id] = None
        self._over.move_to_end(id)
        if len(self._over) > MAX_OVER:
            self._over.popitem(last=False)

    def _name(self) -> str:
        return str(next(self._names))

    def _tell(self, event: Event) -> Iterator[frames.Frame]:
        if isinstance(event, Draining):
            return
        if event.context in self._answers:
            prepared = self._answers.pop(event.context)
            if prepared is not None:
                yield prepared
            return
        if isinstance(event, Failed) and event.context is None:
            yield frames.error(event.error, None, self.request)
            return
        stretch = self._stretches.get(event.context or "")
        if stretch is not None:
            yield from self._tell_of(stretch, event)

    def _tell_of(self, stretch: Stretch, event: Event) -> Iterator[frames.Frame]:
        match event:
            case Opened():
                stretch.opened = True
            case SentenceBegun(end=end):
                stretch.begin(end)
            case SentenceEnded():
                stretch.end()
            case Audio():
                yield from self._play(stretch, event)
            case Flushed():
                yield from self._tell_flushed(stretch)
            case Done():
                yield from self._tell_done(stretch)
            case Failed():
                yield from self._tell_failed(stretch, event)
            case Cancelled():
                self._stretches.pop(stretch.name)

    def _play(self, stretch: Stretch, audio: Audio) -> Iterator[frames.Frame]:
        context = stretch.context
        yield from self._send(stretch, stretch.encode(audio))
        if audio.words and context.style.timestamps:
            yield frames.timestamps(context.id, audio.words, context.spoken_s, context.style.speed, context.flushed + 1)

    def _send(self, stretch: Stretch, data: bytes) -> Iterator[frames.Frame]:
        if data:
            yield frames.chunk(stretch.context.id, data, stretch.step_ms, stretch.context.flushed + 1)

    def _tell_flushed(self, stretch: Stretch) -> Iterator[frames.Frame]:
        rest, flush = stretch.answer_flush()
        yield from self._send(stretch, rest)
        if flush is not None:
            stretch.context.flushed = flush
            yield frames.flush_done(stretch.context.id, flush)

    def _tell_done(self, stretch: Stretch) -> Iterator[frames.Frame]:
        context = stretch.context
        yield from self._send(stretch, stretch.finish())
        context.spoken_s += stretch.seconds
        self._stretches.pop(stretch.name)
        if context.stretch is stretch:
            self._forget(context)
            yield frames.done(context.id)

    def _tell_failed(self, stretch: Stretch, failed: Failed) -> Iterator[frames.Frame]:
        context = stretch.context
        self._stretches.pop(stretch.name)
        if not failed.ended:
            self._unwanted.append(Cancel(stretch.name))
        if context.stretch is stretch:
            self._forget(context)
            yield frames.error(failed.error, context.id, self.request)
