"""What is done to a relay again and again does not stay in its memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.system.fuzzing.conftest import FIRST_SEED, ROUNDS, Scene
from tests.system.fuzzing.dialects import DIALECTS, Who
from tests.system.fuzzing.sockets import Attack
from tests.system.fuzzing.wires import Call

CYCLES = 2
PER_CYCLE = 6
TOLERATED = 12 * 2**20, 2**20
"""Bytes in all and a cycle more: an allocator's own business. Contexts that stayed would be more in one cycle."""


@pytest.mark.timeout(180 + 60 * ROUNDS)
async def test_memory_stays_flat(scene: Scene) -> None:
    """Once every kind of client has been there, further rounds of the same kinds add nothing worth mentioning."""
    who = Who(scene.key, scene.voice, scene.foreign)
    held = []
    for cycle in range(2 + CYCLES * ROUNDS):
        first = FIRST_SEED + 100_000 + PER_CYCLE * cycle
        async with asyncio.TaskGroup() as group:
            for seed in range(first, first + PER_CYCLE):
                group.create_task(Call(who, seed).run(scene.url))
                for dialect in DIALECTS:
                    group.create_task(Attack(dialect, who, seed).run(scene.url))
        await scene.vitals.settle()
        held.append(scene.vitals.resident_bytes())
    once, again = TOLERATED
    assert held[-1] - held[1] < once + again * (len(held) - 2), [round(size / 2**20, 1) for size in held]
