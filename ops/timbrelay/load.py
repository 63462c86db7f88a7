"""Users who listen: each speaks sentence after sentence over a connection of its own and hears them out."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from timbrelay.client import Chunk, Client, Connection, SentenceEnd
from timbrelay.errors import OpsError
from timbrelay.playback import Playback

SENTENCES = (
    "The train to the coast leaves at half past seven.",
    "She put the letter back into the drawer.",
    "Nobody had seen the river so high before.",
    "Please bring two lemons and a loaf of bread.",
    "The old clock in the hall has stopped again.",
    "We walked along the harbour until it was dark.",
    "His answer was short, but it was kind.",
    "Rain is expected in the north by the evening.",
    "The second door on the left is the library.",
    "They planted an apple tree behind the house.",
    "Could you tell me when the museum opens?",
    "The children fell asleep before the story ended.",
)
_STAGGER_S = 1.0


@dataclass(slots=True)
class Tally:
    """What one run has measured; times in seconds."""

    first_audio_s: list[float] = field(default_factory=list)
    """From sending the text to the first frame, an utterance each."""

    underruns: int = 0
    silence_s: float = 0.0
    audio_s: float = 0.0
    synthesis_s: float = 0.0
    """The sum of what the sentences took, each from its hand-over to the workers to its last chunk."""

    errors: dict[str, int] = field(default_factory=dict)

    def count_error(self, error: Exception) -> None:
        code = str(getattr(error, "code", type(error).__name__))
        self.errors[code] = self.errors.get(code, 0) + 1


async def run_users(client: Client, voice: str, users: int, seconds: float, seed: int = 0) -> Tally:
    """Has that many users listen for that long; an utterance that has begun is heard to its end."""
    tally = Tally()
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for index in range(users):
            group.create_task(_listen(client, voice, end, tally, random.Random(f"{seed}/{index}")))  # noqa: S311
    return tally


async def _listen(client: Client, voice: str, end: float, tally: Tally, chance: random.Random) -> None:
    # People do not all begin at the same instant.
    await asyncio.sleep(chance.uniform(0, _STAGGER_S))
    while time.monotonic() < end:
        try:
            async with client.connect() as connection:
                while time.monotonic() < end:
                    await _hear(connection, voice, chance.choice(SENTENCES), tally)
        except (OpsError, TimeoutError) as error:
            tally.count_error(error)
            await asyncio.sleep(_STAGGER_S)


async def _hear(connection: Connection, voice: str, text: str, tally: Tally) -> None:
    context = await connection.open(voice)
    playback, first = Playback(), True
    sent = time.monotonic()
    await context.send(text)
    await context.end()
    async for event in context:
        if isinstance(event, Chunk):
            now = time.monotonic()
            if first:
                tally.first_audio_s.append(now - sent)
            first = False
            playback.push(now, event.samples / connection.sample_rate)
            tally.audio_s += event.samples / connection.sample_rate
        elif isinstance(event, SentenceEnd):
            tally.synthesis_s += event.total_ms / 1000
    tally.underruns += playback.underruns
    tally.silence_s += playback.silence_s
    await asyncio.sleep(playback.left(time.monotonic()))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank); 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
