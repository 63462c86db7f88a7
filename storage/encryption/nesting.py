"""Data keys on their way between the first schema, where the root key wraps them, and the present one.

Only migrations call this, within their transaction, with the tables open to their owner.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from storage.encryption.envelope import Kind, Label, new_key, seal, unseal
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.secrets import SecretBytes


def nest_keys(connection: Connection, open_keys: Callable[[], KeyProvider]) -> None:
    """Make each tenant a key, and put his data keys, which are under the root key, under it."""
    rows = connection.execute(text("SELECT * FROM keyring.data_keys ORDER BY tenant_id")).all()
    if not rows:
        return
    provider = open_keys()
    tenant_keys: dict[UUID, tuple[UUID, SecretBytes]] = {}
    for row in rows:
        if row.tenant_id not in tenant_keys:
            tenant_keys[row.tenant_id] = _make_tenant_key(connection, provider, row.tenant_id)
        key_id, tenant_key = tenant_keys[row.tenant_id]
        label = Label(row.tenant_id, row.owner_id, Kind.DATA_KEY)
        data_key = provider.unwrap(WrappedKey(row.root_key_id, row.wrapped_key), label)
        connection.execute(
            text("UPDATE keyring.data_keys SET wrapped_key = :wrapped, tenant_key_id = :key WHERE owner_id = :owner"),
            {"wrapped": seal(tenant_key, data_key.reveal(), label), "key": key_id, "owner": row.owner_id},
        )


def flatten_keys(connection: Connection, open_keys: Callable[[], KeyProvider]) -> None:
    """Put every data key back under the root key."""
    query = text(
        "SELECT d.*, t.wrapped_key AS tenant_key, t.root_key_id AS its_root FROM keyring.data_keys d"
        " JOIN keyring.tenant_keys t ON t.id = d.tenant_key_id"
    )
    rows = connection.execute(query).all()
    if not rows:
        return
    provider = open_keys()
    for row in rows:
        wrapped = WrappedKey(row.its_root, row.tenant_key)
        tenant_key = provider.unwrap(wrapped, Label(row.tenant_id, row.tenant_key_id, Kind.TENANT_KEY))
        label = Label(row.tenant_id, row.owner_id, Kind.DATA_KEY)
        flat = provider.wrap(SecretBytes(unseal(tenant_key, row.wrapped_key, label)), label)
        connection.execute(
            text("UPDATE keyring.data_keys SET wrapped_key = :wrapped, root_key_id = :root WHERE owner_id = :owner"),
            {"wrapped": flat.ciphertext, "root": flat.root_key_id, "owner": row.owner_id},
        )


def _make_tenant_key(connection: Connection, provider: KeyProvider, tenant: UUID) -> tuple[UUID, SecretBytes]:
    key_id, key = uuid4(), new_key()
    wrapped = provider.wrap(key, Label(tenant, key_id, Kind.TENANT_KEY))
    connection.execute(
        text(
            "INSERT INTO keyring.tenant_keys (id, tenant_id, wrapped_key, root_key_id)"
            " VALUES (:id, :tenant, :wrapped, :root)"
        ),
        {"id": key_id, "tenant": tenant, "wrapped": wrapped.ciphertext, "root": wrapped.root_key_id},
    )
    return key_id, key
