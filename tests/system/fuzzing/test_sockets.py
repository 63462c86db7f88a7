"""Everything at once on every WebSocket: whatever is said there, the relay goes on, and says what is wrong."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.system.doors import hear_native
from tests.system.fuzzing.conftest import FIRST_SEED, ROUNDS, Scene
from tests.system.fuzzing.dialects import DIALECTS, Dialect, Who
from tests.system.fuzzing.sockets import Attack

AT_ONCE = 10
PER_ROUND = 40


@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_a_socket_takes_whatever_comes(dialect: Dialect, scene: Scene) -> None:
    """Broken messages, broken frames, broken connections: no fault, a code of the dialect, and a bystander in peace."""
    who = Who(scene.key, scene.voice, scene.foreign)
    codes: Counter[int | None] = Counter()
    seeds = iter(range(FIRST_SEED, FIRST_SEED + ROUNDS * PER_ROUND))

    async def attack() -> None:
        for seed in seeds:
            one = Attack(dialect, who, seed)
            try:
                await one.run(scene.url)
            except BaseException as error:
                error.add_note(f"{dialect.name}, seed {seed}")
                raise
            codes[one.code] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(attack())
        for ask, pcm in scene.expected.items():
            assert await hear_native(ask) == pcm
    assert sum(codes.values()) == ROUNDS * PER_ROUND
    # A fuzzer that no relay has anything to say to tries nothing.
    assert len(codes) > 1, codes
