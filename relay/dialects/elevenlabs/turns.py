"""One context between a client and the core: its text on the way in, its audio on the way out. Sans-I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum

from relay.dialects.elevenlabs.alignment import Tile
from relay.dialects.elevenlabs.frames import Naming, audio_frame, error_frame, final_frame
from relay.dialects.elevenlabs.markup import MarkupReader, Pause
from relay.dialects.elevenlabs.messages import VoiceSettings
from relay.dialects.elevenlabs.options import Options
from relay.dialects.elevenlabs.voicing import Voicing
from relay.errors import RelayError
from relay.speaking.commands import Cancel, Command, End, Flush, Open, Text
from relay.speaking.events import Audio, Cancelled, Done, Event, Failed, Flushed, SentenceBegun, SentenceEnded
from storage.errors import IllegalTransition

_STOPS = (".", "!", "?", "…", "。", "！", "？")
_CLOSERS = "\"'”’)]»"


class TurnState(StrEnum):
    """Where a context is, as its client sees it."""

    OPEN = "open"
    CLOSED = "closed"
    """Its client adds nothing any more; what is to be said is being said."""
    ENDED = "ended"


TRANSITIONS: Mapping[TurnState, frozenset[TurnState]] = {
    TurnState.OPEN: frozenset({TurnState.CLOSED, TurnState.ENDED}),
    TurnState.CLOSED: frozenset({TurnState.ENDED}),
    TurnState.ENDED: frozenset(),
}


class Turn:
    """Begins with `open`; `tell` gives exactly one last frame, after which it gives none.

    `key` is the core's name for it, unique in its connection; `absolute` says from where normalized times count.
    """

    def __init__(
        self, key: str, naming: Naming, settings: VoiceSettings | None, options: Options, *, absolute: bool = False
    ) -> None:
        self.key = key
        self.naming = naming
        self.settings = settings
        self.state = TurnState.OPEN
        self.heard_at = 0.0
        self.spoke = False
        """Whether there was any text but white space."""
        self._due = False
        """Whether there is text that was not flushed."""
        self._settled = True
        """Whether a flush came by itself after the last text."""
        self._sounded = False
        self.verdict: RelayError | None = None
        """Why it is cancelled, where its client has not asked for that."""
        self._cancelled = False
        self.sound = (options.format, settings.rate if settings else 1.0)
        """Format and speed."""
        self._voicing = Voicing(*self.sound, closing_space=True)
        self._markup = MarkupReader() if options.ssml else None
        self._phrases = options.phrases
        self._absolute = absolute
        self._gap = ""
        self._flushes = 0
        self._pauses: deque[tuple[int, float]] = deque()

    def open(self, voice: str) -> list[Command]:
        """Begin."""
        return [Open(self.key, voice, speed=self.sound[1])]

    def write(self, text: str) -> list[Command]:
        """More text. White space alone is kept until there is more than that: most of it only keeps a context alive."""
        if not text.strip():
            if text and self.spoke:
                # The end of a line is more than a space: a sentence ends with it.
                self._gap = "\n" if "\n" in self._gap + text else " "
            return []
        text, self._gap = self._gap + text, ""
        self.spoke = self._due = True
        self._settled = False
        commands: list[Command] = []
        phrase = self._phrases and _ends_phrase(text)
        if phrase and not text[-1].isspace():
            text += " "
        for part in [text] if self._markup is None else self._markup.push(text):
            commands += self._pass_on(part)
        if phrase and " " in text.strip():
            commands += self._flush()
        return commands

    def flush(self, *, alone: bool) -> list[Command]:
        """Speak what is there; `alone`: it came without a text."""
        self._due = False
        self._settled = self._settled or alone
        return [*self._write_kept(), *self._flush()]

    def finish(self) -> list[Command]:
        """No more text; what is there is spoken."""
        self._move(TurnState.CLOSED)
        return [*self._write_kept(), End(self.key)]

    def cancel(self, verdict: RelayError | None = None) -> list[Command]:
        """Stop now; once more does nothing."""
        if self._cancelled:
            return []
        if self.state is TurnState.OPEN:
            self._move(TurnState.CLOSED)
        self._cancelled, self.verdict = True, verdict
        return [Cancel(self.key)]

    @property
    def wants_its_end(self) -> bool:
        """Whether to close it now is to end it, and not to interrupt it: what was flushed is to be heard.

        In auto mode every sentence comes with a flush, which says nothing of the end of a turn: once it is heard, only
        a flush by itself does.
        """
        flushed = self._settled or not (self._due or (self._phrases and self._sounded))
        return self.spoke and flushed

    @property
    def unspoken(self) -> str:
        """The text of which nothing was told yet when it was heard."""
        return self._voicing.aligner.left

    @property
    def is_spoken_out(self) -> bool:
        """Whether it is closed, and only there to be heard to its end."""
        return self.state is TurnState.CLOSED and not self._cancelled

    def tell(self, event: Event) -> list[str]:
        """What the client is sent for an event of this context."""
        match event:
            case SentenceBegun():
                self._voicing.aligner.begin(event.sentence, event.start, event.end)
            case Audio():
                return self._sound(*self._voicing.take(event))
            case SentenceEnded():
                self._voicing.aligner.end(event.sentence)
            case Flushed():
                return [frame for seconds in self._pauses_after(event.flush) for frame in self._rest(seconds)]
            case Done():
                self._move(TurnState.ENDED)
                return [*self._sound(*self._voicing.finish()), final_frame(self.naming)]
            case Cancelled():
                self._move(TurnState.ENDED)
                if self.verdict is not None:
                    return [self._fail(self.verdict)]
                return [final_frame(self.naming)]
            case Failed():
                if not event.ended:
                    return [error_frame(self.naming, event.error, final=False)]
                self._move(TurnState.ENDED)
                return [self._fail(event.error)]
        return []

    def _fail(self, error: RelayError) -> str:
        return error_frame(self.naming, error, final=True, unspoken=self.unspoken)

    def _sound(self, audio: bytes, tile: Tile | None) -> list[str]:
        if not audio and tile is None:
            return []
        self._sounded = True
        return [audio_frame(self.naming, audio, tile, absolute=self._absolute)]

    def _rest(self, seconds: float) -> list[str]:
        return self._sound(self._voicing.pause(seconds), None)

    def _pauses_after(self, flush: int) -> Sequence[float]:
        due = [seconds for number, seconds in self._pauses if number <= flush]
        for _ in due:
            self._pauses.popleft()
        return due

    def _pass_on(self, part: str | Pause) -> list[Command]:
        if isinstance(part, Pause):
            self._pauses.append((self._flushes, part.seconds))
            return self._flush()
        self._voicing.aligner.push(part)
        return [Text(self.key, part)]

    def _write_kept(self) -> list[Command]:
        kept = [] if self._markup is None else self._markup.flush()
        return [command for part in kept for command in self._pass_on(part)]

    def _flush(self) -> list[Command]:
        self._flushes += 1
        return [Flush(self.key)]

    def _move(self, wanted: TurnState) -> None:
        if wanted not in TRANSITIONS[self.state]:
            raise IllegalTransition("turn", self.state, wanted)
        self.state = wanted


def _ends_phrase(text: str) -> bool:
    return text.rstrip().rstrip(_CLOSERS).endswith(_STOPS)
