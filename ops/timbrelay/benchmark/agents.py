"""Voice agents over the WebSocket: each has a connection of its own and talks, turn by turn, with a person."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass, field

from timbrelay.benchmark.conversation import Turn, plan_turn
from timbrelay.benchmark.playback import Playback
from timbrelay.benchmark.tally import Tally
from timbrelay.client import Chunk, Client, Connection, Context, RelayError, SentenceEnd
from timbrelay.errors import OpsError

REFUSED = "overloaded"
_STAGGER_S = 5.0
_RETRY_S = 1.0
_MAX_RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """So many agents in one voice for so long."""

    voice: str
    users: int
    seconds: float
    seed: int = 0


async def run_agents(client: Client, load: Load) -> Tally:
    """Has the agents talk; a turn that has begun is heard to its end."""
    tally = Tally()
    end = time.monotonic() + load.seconds
    spread_s = min(_STAGGER_S, load.seconds / 2)
    async with asyncio.TaskGroup() as group:
        for number in range(load.users):
            agent = _Agent(client, load, number, end, tally)
            group.create_task(agent.talk(spread_s * number / load.users))
    return tally


class _Agent:
    """One user's agent. What goes wrong with it is counted, and it begins again."""

    def __init__(self, client: Client, load: Load, number: int, end: float, tally: Tally) -> None:
        self._client = client
        self._voice = load.voice
        self._number = number
        self._end = end
        self._tally = tally
        self._chance = random.Random(f"{load.seed}/{number}")  # noqa: S311

    async def talk(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while time.monotonic() < self._end:
            try:
                async with self._client.connect() as connection:
                    while time.monotonic() < self._end:
                        await self._take_turn(connection, plan_turn(self._chance))
            except (OpsError, TimeoutError) as error:
                self._tally.count_error(error)
                await self._rest(_RETRY_S)

    async def _take_turn(self, connection: Connection, turn: Turn) -> None:
        try:
            context = await connection.open(self._voice)
            hearing = Hearing(context, turn, self._tally, connection.sample_rate)
            await hearing.run()
        except RelayError as error:
            if error.code != REFUSED:
                raise
            self._tally.refused += 1
            self._tally.refused_users.add(self._number)
            await self._rest(min((error.retry_after_ms or 1000) / 1000, _MAX_RETRY_S))
            return
        await asyncio.sleep(hearing.left(time.monotonic()))
        await self._rest(turn.think_s)

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(max(min(seconds, self._end - time.monotonic()), 0.0))


@dataclass(slots=True)
class Hearing:
    """One turn: its text is sent while its audio is heard."""

    context: Context
    turn: Turn
    tally: Tally
    sample_rate: int
    playback: Playback = field(default_factory=Playback)
    _sent_at: list[float] = field(default_factory=list)
    _began_at: float = 0.0
    _heard_at: float | None = None
    _interrupted: bool = False
    _hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Raises RelayError or ConnectionLost when the turn could not be heard."""
        helpers = [asyncio.create_task(self._write()), asyncio.create_task(self._interrupt())]
        try:
            async for event in self.context:
                if isinstance(event, Chunk):
                    self._hear(event, time.monotonic())
                elif isinstance(event, SentenceEnd):
                    self._note(event)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        self.tally.turns += 1
        self.tally.underruns += self.playback.underruns
        self.tally.silence_s += self.playback.silence_s

    def left(self, now: float) -> float:
        """How long the person goes on listening after the last event: to the end, or until enough was heard."""
        if self._interrupted:
            return 0.0
        enough = math.inf if self.turn.barge_in_s is None else self.turn.barge_in_s
        return max(min(self.playback.left(now), self._began_at + enough - now), 0.0)

    async def _write(self) -> None:
        due = time.monotonic()
        for token, pause_s in zip(self.turn.tokens, self.turn.pauses_s, strict=True):
            due += pause_s
            await asyncio.sleep(due - time.monotonic())
            # Before it is sent, not after: what waits in our own socket is part of the way to the relay.
            self._sent_at.append(time.monotonic())
            self.tally.lags_s.append(self._sent_at[-1] - due)
            await self.context.send(token)
        self._sent_at.append(time.monotonic())
        await self.context.end()

    async def _interrupt(self) -> None:
        """As soon as the person has heard enough, if that is at all."""
        if self.turn.barge_in_s is None:
            return
        await self._hung_up.wait()
        await asyncio.sleep(self.turn.barge_in_s)
        self._interrupted = True
        self.tally.interrupted += 1
        await self.context.cancel()

    def _hear(self, chunk: Chunk, now: float) -> None:
        complete_at = self._complete_at(chunk.sentence)
        if self._heard_at is None:
            self._began_at = now
            self.tally.first_audio_s.append(now - complete_at)
            self._hung_up.set()
        elif chunk.number:
            self.tally.gaps_s.append(now - self._heard_at)
        self._heard_at = now
        audio_s = chunk.samples / self.sample_rate
        self.tally.audio_s += audio_s
        self.playback.push(now, audio_s, complete_at)

    def _complete_at(self, sentence: int) -> float:
        """When the token was sent with which the relay could have the sentence."""
        completing = self.turn.completing
        token = completing[sentence] if sentence < len(completing) else len(self.turn.tokens)
        return self._sent_at[min(token, len(self._sent_at) - 1)]

    def _note(self, end: SentenceEnd) -> None:
        self.tally.sentences_s += end.total_ms / 1000
        self.tally.spoken_s += end.samples / self.sample_rate
        if end.sentence == 0:
            self.tally.relay_first_audio_s.append(end.first_audio_ms / 1000)
            if end.overhead_ms is not None:
                self.tally.overhead_s.append(end.overhead_ms / 1000)
