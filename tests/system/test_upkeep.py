"""Upkeep in the running whole: what was spoken reaches the tenant's account by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from storage.database import Database
from storage.evidence.audit import read_audit
from storage.paging import Page
from storage.tenancy.usage import Usage, read_usage
from tests.conftest import MakeTenant
from tests.system.conftest import MakeSpeaker

DEADLINE_S = 60.0
TEXT = "The first sentence is short. So is the second one."


async def test_what_is_spoken_is_accounted_for(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker, make_tenant: MakeTenant, database: Database
) -> None:
    """Beat has it rolled up: usage by voice and day, and an entry in the audit log that holds no word of the text."""
    stack = start_stack()
    speaker = await make_speaker(stack, "acme", "low")
    tenant = (await make_tenant("acme")).id
    heard = await speaker.speak(TEXT)
    row = await _wait_for_usage(database, tenant)
    assert (row.voice_id, row.contexts, row.sentences) == (UUID(speaker.voice), 1, 2)
    assert row.audio_ms == round(len(heard.pcm) / 2 / 24)
    async with database.transaction(tenant=tenant) as connection:
        (entry,) = await read_audit(connection, tenant, action="voice.spoken")
    assert entry.object_id == speaker.voice
    assert entry.detail["audio_ms"] == row.audio_ms
    assert "sentence" not in str(entry.detail.values())


async def _wait_for_usage(database: Database, tenant: UUID) -> Usage:
    today = datetime.now(UTC).date()
    for _ in range(int(DEADLINE_S * 10)):
        async with database.transaction(tenant=tenant) as connection:
            first, last = today - timedelta(days=1), today + timedelta(days=1)
            found = await read_usage(connection, tenant, first, last, page=Page(10))
        if found.items:
            return found.items[0]
        await asyncio.sleep(0.1)
    raise AssertionError(f"no usage within {DEADLINE_S} s")
