"""timbrelay.benchmark.storage: what is measured is what was asked for, on a database that holds it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sqlalchemy import text

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.settings import Settings
from timbrelay.benchmark.storage.measuring import Measured, Spread, measure
from timbrelay.benchmark.storage.operations import plan_operations
from timbrelay.benchmark.storage.page import Findings, render_page, render_table
from timbrelay.benchmark.storage.population import Shape, populate

SHAPE = Shape(voices=200, tenants=3, enrolled=4, keys=2)


async def test_a_population_is_measured_operation_by_operation(
    settings: Settings, database: Database, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many voices as the shape says, every operation finds what it looks for, and its plans are told."""
    for name in ("CALLS", "EXPLAINED", "WARM_UP"):
        monkeypatch.setattr(f"timbrelay.benchmark.storage.measuring.{name}", 2)
    owner = Database.for_owner(settings)
    reported: list[int] = []
    residents = await populate(owner, database, keyring, SHAPE, reported.append)
    await owner.close()
    counts = []
    for resident in residents:
        async with database.transaction(tenant=resident.id) as connection:
            counts.append((await connection.execute(text("SELECT count(*) FROM voices"))).scalar())
    assert counts == [SHAPE.share(0), SHAPE.share(1), SHAPE.share(2)] == [100, 50, 50]
    assert reported == [100, 150, 200]
    measured = [
        await measure(database, operation)
        for operation in plan_operations(database, keyring, residents, random.Random(1))
    ]
    assert all(item.plans and item.database.p50 > 0 and item.call.p50 > 0 for item in measured)
    page = "\n".join(render_page(Findings("machine", "today", "commit", "18", SHAPE, tuple(measured))))
    assert all(item.name in page for item in measured)
    assert "app.tenant" in page, "the policies are not part of the plans"


def test_what_exceeds_its_limit_or_reads_a_table_is_named() -> None:
    """The time that counts is the database's, or the whole call's; a sequential scan is shown."""
    slow, fast = Spread(1, 9, 9), Spread(1, 2, 3)
    item = Measured("an operation", 5.0, False, slow, fast, ("Index Scan using voices_listed on voices",))
    assert item.held
    assert not item.scans
    assert not replace(item, whole=True).held
    assert replace(item, plans=("Seq Scan on voices",)).scans
    table = render_table(Findings("machine", "today", "commit", "18", SHAPE, (replace(item, whole=True),)))
    assert "NO" in table[-1]
