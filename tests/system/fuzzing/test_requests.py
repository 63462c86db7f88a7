"""Everything at once at every door over HTTP: no fault, no answer in another dialect, no place that stays taken."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.system.doors import hear_native
from tests.system.fuzzing.conftest import FIRST_SEED, ROUNDS, Scene
from tests.system.fuzzing.dialects import Who
from tests.system.fuzzing.wires import Call, describe

AT_ONCE = 10
PER_ROUND = 150


@pytest.mark.timeout(120 + 60 * ROUNDS)
async def test_a_request_can_be_anything(scene: Scene) -> None:
    """Bodies of any type and depth, forms that are none, heads that lie: each is answered as its door answers."""
    who = Who(scene.key, scene.voice, scene.foreign)
    statuses: Counter[int | None] = Counter()
    seeds = iter(range(FIRST_SEED, FIRST_SEED + ROUNDS * PER_ROUND))

    async def attack() -> None:
        for seed in seeds:
            call = Call(who, seed)
            try:
                await call.run(scene.url)
            except BaseException as error:
                error.add_note(f"seed {seed}: {describe(call.asked)}")
                raise
            statuses[call.status] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(attack())
        for ask, pcm in scene.expected.items():
            assert await hear_native(ask) == pcm
    assert sum(statuses.values()) == ROUNDS * PER_ROUND
    # A fuzzer that no relay has anything to say to tries nothing.
    assert {200, 400, 404, 422} <= set(statuses), statuses
