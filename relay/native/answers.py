"""What the relay says in the native protocol besides binary frames; docs/asyncapi.json is made of these models."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from relay.audio.encoding import SOURCE_RATE
from relay.native.styles import PLAIN, Style
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

PROTOCOL = 1


class Answer(BaseModel):
    """One JSON object, with a `type`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def show(self) -> str:
        """As it goes to the client."""
        return self.model_dump_json()


class HelloAnswer(Answer):
    """The first message of a connection: the protocol, and the audio of a context that asks for no other format."""

    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    sample_rate: int = SOURCE_RATE
    """In Hz."""
    encoding: Literal["pcm_s16le"] = "pcm_s16le"
    channels: Literal[1] = 1
    chunk_samples: int
    """How long a chunk is; the last of a sentence may be shorter, and the first as well."""


class OpenedAnswer(Answer):
    """A context has begun, or goes on after its connection was lost."""

    type: Literal["opened"] = "opened"
    context: str
    number: int
    """Names the context in binary frames; another one after it was resumed."""
    voice: UUID
    """Its id, also where an alias was sent."""
    version: int
    resume: str
    """The token that resumes the context; a secret of its client."""
    format: str
    """Of the audio in binary frames."""
    sample_rate: int
    """Of that format, in Hz."""
    media_type: str
    """Of that format."""
    speed: float
    characters: int
    """How many code points of the context's text have arrived: after a resume, send what comes behind them."""
    ended: bool
    """Whether `end` has arrived as well."""


class SentenceAnswer(Answer):
    """A sentence went to the workers."""

    type: Literal["sentence"] = "sentence"
    context: str
    sentence: int
    start: int
    """Its span in the context's text, in code points."""
    end: int


class SpokenWord(BaseModel):
    """A word as it was written, and when it is heard."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    text: str
    start: int
    """Its span in the context's text, in code points."""
    end: int
    start_ms: int
    """Since the beginning of the context's audio, as it is heard at the speed that was asked for."""
    end_ms: int


class WordsAnswer(Answer):
    """The words that are complete with the chunk that follows: each once, in their order."""

    type: Literal["words"] = "words"
    context: str
    sentence: int
    words: list[SpokenWord]


class SentenceEndAnswer(Answer):
    """The last chunk of a sentence was sent. Times count from when it went to the workers."""

    type: Literal["sentence_end"] = "sentence_end"
    context: str
    sentence: int
    chunks: int
    samples: int
    """At 24 kHz, before format and speed."""
    first_audio_ms: float
    overhead_ms: float | None
    """The part of `first_audio_ms` in which nothing was computed for it; null where the worker does not say."""
    total_ms: float


class FlushedAnswer(Answer):
    """All that was sent before a flush is spoken."""

    type: Literal["flushed"] = "flushed"
    context: str
    flush: int
    """The flush's number within its context, from 0."""


class DoneAnswer(Answer):
    """All of the context is spoken; it has ended."""

    type: Literal["done"] = "done"
    context: str
    sentences: int
    samples: int
    """At 24 kHz, before format and speed."""


class CancelledAnswer(Answer):
    """The answer to `cancel`; no frame of the context follows."""

    type: Literal["cancelled"] = "cancelled"
    context: str


class Span(BaseModel):
    """A part of a context's text, in code points."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: int
    end: int


class ErrorAnswer(Answer):
    """With a `context`: it has ended, or never began. Without: the message was refused and everything else goes on."""

    type: Literal["error"] = "error"
    code: str
    message: str
    field: str | None
    """Of the message at fault."""
    retryable: bool
    retry_after_ms: Annotated[int | None, Field(exclude_if=lambda wait: wait is None)] = None
    """When it may be worth trying again, where the relay can tell."""
    context: str | None
    unspoken: Span | None
    """What of the context's text was not heard to its end."""


class DrainingAnswer(Answer):
    """The relay is going to stop: finish what has begun, and open nothing new here."""

    type: Literal["draining"] = "draining"
    within_ms: int
    """What is not spoken by then is cut off."""


def answer(event: Event, style: Style = PLAIN) -> Answer:
    """Any event in the words of the protocol; of a chunk of audio its words."""
    match event:
        case Opened():
            return _answer_opened(event, style)
        case SentenceBegun(context=context, sentence=sentence, start=start, end=end):
            return SentenceAnswer(context=context, sentence=sentence, start=start, end=end)
        case Audio():
            return _answer_words(event, style.speed)
        case SentenceEnded():
            return _answer_sentence_end(event)
        case Flushed(context=context, flush=flush):
            return FlushedAnswer(context=context, flush=flush)
        case Done(context=context, sentences=sentences, samples=samples):
            return DoneAnswer(context=context, sentences=sentences, samples=samples)
        case Cancelled(context=context):
            return CancelledAnswer(context=context)
        case Failed():
            return _answer_failed(event)
        case Draining(within_s=within_s):
            return DrainingAnswer(within_ms=round(1000 * within_s))


def _answer_opened(event: Opened, style: Style) -> OpenedAnswer:
    return OpenedAnswer(
        context=event.context,
        number=event.number,
        voice=event.voice,
        version=event.version,
        resume=event.resume,
        format=style.format.name,
        sample_rate=style.format.sample_rate,
        media_type=style.format.media_type,
        speed=style.speed,
        characters=event.characters,
        ended=event.ended,
    )


def _answer_words(event: Audio, speed: float) -> WordsAnswer:
    words = [
        SpokenWord(
            text=word.text,
            start=word.start,
            end=word.end,
            start_ms=round(1000 * word.start_s / speed),
            end_ms=round(1000 * word.end_s / speed),
        )
        for word in event.words
    ]
    return WordsAnswer(context=event.context, sentence=event.sentence, words=words)


def _answer_sentence_end(event: SentenceEnded) -> SentenceEndAnswer:
    return SentenceEndAnswer(
        context=event.context,
        sentence=event.sentence,
        chunks=event.chunks,
        samples=event.samples,
        first_audio_ms=event.first_audio_ms,
        overhead_ms=event.overhead_ms,
        total_ms=event.total_ms,
    )


def _answer_failed(event: Failed) -> ErrorAnswer:
    error = event.error
    return ErrorAnswer(
        code=error.code,
        message=error.message,
        field=error.field,
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
        context=event.context if event.ended else None,
        unspoken=None if event.unspoken is None else Span(start=event.unspoken[0], end=event.unspoken[1]),
    )
