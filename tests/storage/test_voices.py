"""storage.voices.voices, over a real Postgres."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.paging import Page
from storage.states import VoiceState
from storage.tenancy.api_keys import authenticate, find_valid, revoke_key, rotate_key
from storage.voices.aliases import set_alias
from storage.voices.versions import load_embedding
from storage.voices.voices import (
    Erased,
    Speaker,
    begin_deletion,
    find_speaker,
    find_voice,
    finish_deletion,
    list_voices,
)
from tests.conftest import MakeTenant, MakeVoice

EMBEDDING = bytes(range(256)) * 4


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> UUID:
    return (await make_tenant("acme")).id


async def test_a_ready_voice_speaks_by_its_id_and_by_its_alias(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """Both name the voice and the version that speaks."""
    voice = await make_voice(tenant, embedding=EMBEDDING)
    async with database.transaction(tenant=tenant) as connection:
        assert await set_alias(connection, tenant, "narrator", voice)
        for name in (str(voice), "narrator"):
            assert await find_speaker(connection, tenant, name) == Speaker(voice, 1, VoiceState.READY)
        assert await find_speaker(connection, tenant, "nobody") is None
        assert await find_speaker(connection, tenant, str(uuid4())) is None
        assert await load_embedding(connection, keyring, tenant, voice, 1) == EMBEDDING
        found = await find_voice(connection, tenant, voice)
        assert found is not None
        assert (found.state, found.version, found.aliases) == (VoiceState.READY, 1, ("narrator",))
        assert (await list_voices(connection, tenant, Page(10))).items == (found,)


async def test_a_deleted_voice_leaves_its_id_alone(
    database: Database, keyring: Keyring, tenant: UUID, make_voice: MakeVoice
) -> None:
    """The key, the versions, the aliases and the name are gone; whoever comes second finds nothing to do."""
    voice = await make_voice(tenant, embedding=EMBEDDING)
    async with database.transaction(tenant=tenant) as connection:
        assert await set_alias(connection, tenant, "narrator", voice)
        assert await begin_deletion(connection, tenant, voice)
        assert not await begin_deletion(connection, tenant, voice)
        assert await finish_deletion(connection, tenant, voice) == Erased(1, 1, 1)
        assert await finish_deletion(connection, tenant, voice) == Erased(0, 0, 0)
        assert await find_voice(connection, tenant, voice) is None
        assert await load_embedding(connection, keyring, tenant, voice, 1) is None


async def test_a_key_opens_its_tenant_until_it_is_revoked(database: Database, make_tenant: MakeTenant) -> None:
    """A rotated key works beside its successor for the overlap."""
    from datetime import timedelta

    made = await make_tenant("acme")
    caller = await authenticate(database, made.key)
    assert caller is not None
    assert (caller.key_id, caller.tenant) == (made.key_id, made.id)
    async with database.transaction(tenant=made.id) as connection:
        new, text = await rotate_key(connection, made.key_id, timedelta(hours=1))
    assert await find_valid(database, [made.key_id, new.id, uuid4()]) == {made.key_id, new.id}
    async with database.transaction(tenant=made.id) as connection:
        assert await revoke_key(connection, made.key_id)
        assert not await revoke_key(connection, made.key_id)
    assert await authenticate(database, made.key) is None
    assert await authenticate(database, text.get_secret_value()) is not None
