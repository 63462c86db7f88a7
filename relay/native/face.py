"""The native protocol, sans-I/O (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Sequence

from relay.audio.encoding import Encoder, make_encoder
from relay.audio.formats import Format
from relay.doors.face import Close, Frame
from relay.errors import InvalidMessage
from relay.native.answers import HelloAnswer, answer
from relay.native.frames import encode_frame, encode_mel, encode_rest
from relay.native.messages import read_message
from relay.native.styles import PLAIN, Style
from relay.speaking.commands import Command, Open, Resume
from relay.speaking.events import SAMPLE_RATE, Audio, Cancelled, Done, Event, Failed, Opened


class _Stream:
    """What one context's audio is made into."""

    def __init__(self, number: int, style: Style) -> None:
        self.number = number
        self.style = style
        self._encoder: Encoder | None = None if style.plain else make_encoder(style.format, speed=style.speed)

    def encode(self, audio: Audio) -> bytes:
        """The frame of a chunk."""
        return encode_frame(audio, None if self._encoder is None else self._encoder.encode(audio.pcm))

    def finish(self) -> list[Frame]:
        """The frame of what the encoder still holds, if there is any."""
        rest = b"" if self._encoder is None else self._encoder.finish()
        return [encode_rest(self.number, rest)] if rest else []


class NativeFace:
    """Keeps an encoder for each open context that has asked for one."""

    def __init__(self, chunk_ms: int) -> None:
        self._chunk_samples = SAMPLE_RATE * chunk_ms // 1000
        self._streams: dict[str, _Stream] = {}

    def greet(self) -> Sequence[Frame]:
        """What audio there will be."""
        return [HelloAnswer(chunk_samples=self._chunk_samples).show()]

    def hear(self, raw: Frame, _now: float) -> Sequence[Command]:
        """Raises InvalidMessage or TextTooLong for what cannot be read."""
        if isinstance(raw, bytes):
            raise InvalidMessage("clients send JSON text, no binary frames")
        return [read_message(raw)]

    def sound_of(self, command: Open | Resume) -> tuple[Format, float] | None:
        """As the message said."""
        return (command.manner.format, command.manner.speed) if isinstance(command.manner, Style) else None

    def tell(self, event: Event) -> Sequence[Frame | Close]:
        """Audio as a binary frame, what belongs to it before it; everything else as JSON."""
        match event:
            case Opened(context=context, number=number, manner=manner):
                style = manner if isinstance(manner, Style) else PLAIN
                self._streams[context] = _Stream(number, style)
                return [answer(event, style).show()]
            case Audio():
                return self._tell_audio(event)
            case Done(context=context):
                stream = self._streams.pop(context, None)
                return [*([] if stream is None else stream.finish()), answer(event).show()]
            case Cancelled(context=context) | Failed(context=str(context), ended=True):
                self._streams.pop(context, None)
        return [answer(event).show()]

    def tick(self, _now: float) -> Sequence[Command | Close]:
        """It has no times of its own."""
        return []

    def _tell_audio(self, audio: Audio) -> list[Frame]:
        stream = self._streams[audio.context]
        frames: list[Frame] = [answer(audio, stream.style).show()] if audio.words else []
        if audio.mel:
            frames.append(encode_mel(audio))
        return [*frames, stream.encode(audio)]
