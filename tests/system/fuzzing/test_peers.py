"""Everything at once at the door of WebRTC: whatever is offered, trickled and said, no peer and no fault is left."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random

import httpx2
import pytest
from aiortc.exceptions import InvalidStateError

from tests.conftest import DEADLINE_S
from tests.relay.webrtc.listening import connect_whep
from tests.system.fuzzing.conftest import FIRST_SEED, ROUNDS, Scene
from tests.system.fuzzing.mutations import LARGE
from tests.system.fuzzing.peers import Caller, make_message, make_offers

AT_ONCE = 4
PER_ROUND = 60


def _client(scene: Scene) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {scene.key}"}
    return httpx2.AsyncClient(base_url=scene.url, headers=headers, timeout=30, trust_env=False)


@pytest.mark.timeout(120 + 90 * ROUNDS)
async def test_an_offer_can_be_anything(scene: Scene) -> None:
    """Session descriptions, fragments and messages with anything in them: answered, or refused with a problem."""
    statuses: Counter[int] = Counter()
    seeds = iter(range(FIRST_SEED, FIRST_SEED + ROUNDS * PER_ROUND))
    listeners, offers = await make_offers()

    async def call(http: httpx2.AsyncClient) -> None:
        for seed in seeds:
            try:
                statuses[await Caller(scene, http, offers[seed % 2], seed).run()] += 1
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise

    try:
        async with _client(scene) as http, asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(call(http))
    finally:
        for listener in listeners:
            await listener.connection.close()
    assert {200, 201, 422} <= set(statuses), statuses


@pytest.mark.timeout(120 + 60 * ROUNDS)
async def test_a_data_channel_can_say_anything(scene: Scene) -> None:
    """Broken messages, bytes, floods, and a client that is gone in mid-text: answered in its order, and forgotten."""
    async with _client(scene) as http:
        for seed in range(FIRST_SEED, FIRST_SEED + ROUNDS):
            random = Random(f"channel {seed}")
            async with connect_whep(http, voice=scene.voice) as listener:
                await listener.until_connected()
                with contextlib.suppress(InvalidStateError):
                    for _ in range(random.choice((20, 60, 400))):
                        message = make_message(random, scene.voice).encode("utf-8", "replace")
                        listener.channel.send(
                            random.choice((message.decode(), message.decode(), message, LARGE[:65_000]))
                        )
                        if random.random() < 0.1:
                            await asyncio.sleep(0.02)
                async with asyncio.timeout(DEADLINE_S):
                    while not any(told["type"] == "error" for told in listener.told):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                for told in listener.told:
                    assert told["type"] != "error" or (told["code"] != "internal" and told["message"]), told
