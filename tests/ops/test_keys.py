"""`timbrelay keys create` and `revoke`: what is asked for, and what a relay makes of the key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from storage.database import Database
from storage.evidence.audit import PLATFORM, read_audit
from storage.settings import Settings
from storage.tenancy.api_keys import Scope, authenticate
from timbrelay import keys
from timbrelay.errors import UsageFault
from timbrelay.stack.servers import Servers


@pytest.fixture
def own(settings: Settings) -> Servers:
    """The servers of the test."""
    return Servers(settings.database_url, settings.owner_url, settings.redis_url, None, None)


async def test_a_key_is_made_with_its_tenant_and_put_on_record(own: Servers, database: Database) -> None:
    """Scopes and end are as they were asked for; the second key of a tenant makes no second tenant."""
    order = keys.parse_order("acme", "speak, enrol", "90d", operator=False)
    key_id, text = await keys.create(own, order)
    caller = await authenticate(database, text)
    assert caller is not None and caller.tenant is not None and str(caller.key_id) == key_id
    assert caller.scopes == {Scope.SPEAK, Scope.ENROL}
    assert caller.expires_at is not None
    assert timedelta(days=89) < caller.expires_at - datetime.now(UTC) <= timedelta(days=90)
    again = await authenticate(database, (await keys.create(own, keys.Order("acme")))[1])
    assert again is not None and again.tenant == caller.tenant
    async with database.transaction(tenant=caller.tenant) as connection:
        entries = await read_audit(connection, caller.tenant)
    assert [(entry.action, entry.actor, entry.origin) for entry in entries] == [
        ("key.created", "operator:cli", "cli"),
        ("key.created", "operator:cli", "cli"),
    ]
    async with database.transaction(tenant=PLATFORM) as connection:
        assert [entry.action for entry in await read_audit(connection, PLATFORM)] == ["tenant.created"]


async def test_a_revoked_key_opens_nothing(own: Servers, database: Database) -> None:
    """Revoking once more, or what is no key, is wrong usage."""
    key_id, text = await keys.create(own, keys.parse_order("", "", "", operator=True))
    caller = await authenticate(database, text)
    assert caller is not None and caller.tenant is None and caller.scopes == {Scope.OPERATOR}
    await keys.revoke(own, UUID(key_id))
    assert await authenticate(database, text) is None
    for unknown in (UUID(key_id), uuid4()):
        with pytest.raises(UsageFault):
            await keys.revoke(own, unknown)


@pytest.mark.parametrize(
    ("tenant", "scopes", "expires", "operator"),
    [
        ("", "speak", "", False),
        ("acme", "speak", "", True),
        ("acme", "", "", False),
        ("acme", "speak,operator", "", False),
        ("acme", "sing", "", False),
        ("acme", "speak", "soon", False),
        ("acme", "speak", "2001-01-01", False),
        ("acme", "speak", "99999999999d", False),
    ],
)
def test_an_order_that_makes_no_sense_is_wrong_usage(tenant: str, scopes: str, expires: str, operator: bool) -> None:
    """A key is a tenant's or the operator's, its scopes are known, and its end lies ahead."""
    with pytest.raises(UsageFault):
        keys.parse_order(tenant, scopes, expires, operator)


async def test_a_tenant_that_can_have_no_such_name_is_wrong_usage(own: Servers) -> None:
    """The name is checked where it is kept."""
    with pytest.raises(UsageFault):
        await keys.create(own, keys.Order("a\0b"))
