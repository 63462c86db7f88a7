"""Continuous batching: one thread steps all sentences in flight; they join and leave between its steps.

The event loop hands sentences in and takes chunks out, and never waits for a model; who is in the next step is
`worker.scheduling`'s to say.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import structlog
from numpy.typing import NDArray

from worker import metrics
from worker.preparation import Preparation
from worker.scheduling import Costs, Limits, Roster, Supply, plan_batch
from worker.sv2tts.mel import SAMPLE_RATE
from worker.sv2tts.speech import Round, Speech, SpeechChunk, SpeechModel

log = structlog.get_logger()

MAX_UNPUBLISHED = 8
"""Chunks of a stream that may wait to be published; then it is not computed any further."""

STOP_DEADLINE_S = 2.0
_WARM_UP_ROWS = (1, 4, 16)
_BYTES_PER_SAMPLE = 2
_SHARE_TO_PROMISE = 0.7
"""Of the time of the machine, what is promised to listeners; the rest is for publishing and for whoever comes next."""


@dataclass(frozen=True, slots=True)
class Request:
    """A sentence to speak."""

    context: str
    sentence: int
    text: str
    embedding: NDArray[np.float32]
    needed_at: float
    """When its listener runs dry, on the clock of `time.monotonic`."""
    resumed: bool = False
    mel: bool = False
    """Whether its chunks are to carry mel frames."""
    speed: float = 1.0
    """How many times faster than it is spoken its listener hears it."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A chunk, and the seconds of computing that the sentence took up to it."""

    chunk: SpeechChunk
    computed_s: float


@dataclass(slots=True)
class _Member:
    speech: Speech
    stream: Stream
    joined_at: float
    computed_s: float
    decode_s: float = 0.0
    vocode_s: float = 0.0
    made: int = 0
    stepped: bool = False


class Stream:
    """The chunks of one sentence, as the event loop gets them; leave it in every case."""

    def __init__(self, engine: Engine, key: int) -> None:
        self.key = key
        self.published = 0
        self.cut = False
        """Whether the sentence did not stop by itself; known with its last chunk."""
        self._engine = engine
        self._outcomes: asyncio.Queue[Sound | Exception] = asyncio.Queue()

    @property
    def pending(self) -> int:
        """How many chunks lie ready."""
        return self._outcomes.qsize()

    async def next(self) -> Sound:
        """The next chunk; raises what ended the sentence."""
        outcome = await self._outcomes.get()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def note_published(self) -> None:
        """A chunk has left: there is room for another."""
        self.published += 1
        self._engine.wake()

    def put(self, outcome: Sound | Exception) -> None:
        """Hand over a chunk or the error that ends the sentence; bounded by MAX_UNPUBLISHED and what a step gives."""
        self._outcomes.put_nowait(outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.leave(self)


_Deliveries = list[tuple[Stream, Sound | Exception]]


class Engine:
    """Speaks any number of sentences at once with one model on one thread of its own."""

    def __init__(
        self, model: SpeechModel, limits: Limits, clock: Callable[[], float] = time.monotonic, chunk_s: float = 0.08
    ) -> None:
        self._model = model
        self._limits = limits
        self._clock = clock
        self._chunk_s = chunk_s
        self._costs = Costs()
        self._preparation = Preparation(1)
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._members: dict[int, _Member] = {}
        self._roster = Roster()
        self._busy_s, self._asked_at = 0.0, clock()
        self._stopping = False

    def warm_up(self) -> None:
        """Run the models in batches of several sizes, and learn what they cost; seconds on a slow machine."""
        seconds = self._model.warm_up(*_WARM_UP_ROWS)
        row_s = max(1e-6, (seconds[-1] - seconds[0]) / (_WARM_UP_ROWS[-1] - _WARM_UP_ROWS[0]))
        self._costs = Costs(max(1e-5, seconds[0] - row_s), row_s)

    @property
    def capacity(self) -> int:
        """How many listeners it holds at real time, by what steps cost of late."""
        rows = min(self._limits.rows, _WARM_UP_ROWS[-1])
        return int(_SHARE_TO_PROMISE * self._chunk_s * rows / self._costs.expect(rows))

    @property
    def listeners(self) -> int:
        """How many contexts have sentences here."""
        with self._changed:
            return self._roster.listeners

    def busy_share(self) -> float:
        """The share of the time since the last call in which it computed."""
        now = self._clock()
        share = self._busy_s / max(now - self._asked_at, 1e-3)
        self._busy_s, self._asked_at = 0.0, now
        return min(1.0, share)

    async def serve(self) -> None:
        """Compute until cancelled; raises what broke the thread."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()
        thread = threading.Thread(target=self._run, args=(loop, broken), name="engine", daemon=True)
        thread.start()
        preparing = asyncio.create_task(self._preparation.serve())
        try:
            await broken
        finally:
            preparing.cancel()
            with self._changed:
                self._stopping = True
                self._changed.notify()
            await asyncio.to_thread(thread.join, STOP_DEADLINE_S)

    async def start(self, request: Request) -> Stream:
        """Read the text and run the encoder, beside the steps of the others, and join them; raises NothingToSay and
        what the models do."""
        deadline_ms = int(1000 * request.needed_at)
        speech, symbols, seconds = await self._preparation.run(deadline_ms, lambda: self._prepare(request))
        stream = Stream(self, next(self._numbers))
        now = self._clock()
        supply = Supply(
            request.context, request.sentence, request.needed_at, symbols, request.resumed, speed=request.speed
        )
        with self._changed:
            self._members[stream.key] = _Member(speech, stream, now, seconds)
            self._roster.join(stream.key, supply, now)
            self._changed.notify()
        return stream

    def hurry(self) -> None:
        """Compute what is in flight as fast as can be, however far ahead of its listeners: the worker is to stop."""
        with self._changed:
            self._limits = replace(self._limits, run_ahead_s=math.inf)
            self._changed.notify()

    def wake(self) -> None:
        """Something changed that the thread may wait for."""
        with self._changed:
            self._changed.notify()

    def leave(self, stream: Stream) -> None:
        """The sentence is not wanted any more, or done: it is in no later step."""
        with self._changed:
            self._members.pop(stream.key, None)
            self._roster.leave(stream.key)

    def _prepare(self, request: Request) -> tuple[Speech, int, float]:
        started = time.perf_counter()
        reading = self._model.read(request.text)
        read = time.perf_counter()
        speech = self._model.begin(reading, request.embedding, mel=request.mel)
        done = time.perf_counter()
        metrics.STAGES.labels("text").observe(read - started)
        metrics.STAGES.labels("encode").observe(done - read)
        return speech, len(reading.ids), done - started

    def _run(self, loop: asyncio.AbstractEventLoop, broken: asyncio.Future[None]) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                loop.call_soon_threadsafe(_deliver, self._step(batch))
        except BaseException as error:
            log.error("the engine broke", exc_info=error)
            loop.call_soon_threadsafe(_break, broken, error)

    def _next_batch(self) -> list[_Member] | None:
        """Wait for something to compute; None at the end."""
        with self._changed:
            while not self._stopping:
                now = self._clock()
                ready = {key for key, one in self._members.items() if one.made - one.stream.published < MAX_UNPUBLISHED}
                plan = plan_batch(self._roster.standings(ready), now, self._limits, self._costs)
                if plan.keys:
                    return [self._members[key] for key in plan.keys]
                self._changed.wait(None if plan.wake_at is None else max(0.0, plan.wake_at - now))
        return None

    def _step(self, batch: list[_Member]) -> _Deliveries:
        began = self._clock()
        for member in batch:
            if not member.stepped:
                metrics.STAGES.labels("wait").observe(began - member.joined_at)
                member.stepped = True
        outcome = self._model.advance([member.speech for member in batch])
        now = self._clock()
        self._costs.note(len(batch), now - began)
        self._busy_s += now - began
        metrics.BATCH_ROWS.observe(len(batch))
        deliveries: _Deliveries = []
        with self._changed:
            for member, chunks in zip(batch, outcome.outcomes, strict=True):
                self._account(member, chunks, outcome, len(batch), now, deliveries)
        return deliveries

    def _account(
        self,
        member: _Member,
        chunks: tuple[SpeechChunk, ...] | Exception,
        outcome: Round,
        rows: int,
        now: float,
        deliveries: _Deliveries,
    ) -> None:
        key = member.stream.key
        member.computed_s += outcome.decode_s + outcome.vocode_s
        member.decode_s += outcome.decode_s / rows
        member.vocode_s += outcome.vocode_s / rows
        if isinstance(chunks, Exception):
            self._members.pop(key, None)
            self._roster.leave(key)
            deliveries.append((member.stream, chunks))
            return
        for chunk in chunks:
            member.made += 1
            deliveries.append((member.stream, Sound(chunk, member.computed_s)))
        seconds = sum(len(chunk.pcm) for chunk in chunks) / _BYTES_PER_SAMPLE / SAMPLE_RATE
        self._roster.give(key, seconds, member.speech.utterance.symbols_left, now)
        if chunks:
            metrics.STAGES.labels("decode").observe(member.decode_s)
            metrics.STAGES.labels("vocode").observe(member.vocode_s)
            member.decode_s = member.vocode_s = 0.0
        if chunks and chunks[-1].last:
            member.stream.cut = member.speech.cut
            self._members.pop(key, None)
            self._roster.finish(key)


def _deliver(deliveries: _Deliveries) -> None:
    for stream, outcome in deliveries:
        stream.put(outcome)


def _break(broken: asyncio.Future[None], error: BaseException) -> None:
    if not broken.done():
        broken.set_exception(error)
