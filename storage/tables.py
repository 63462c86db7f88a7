"""The tables, as SQLAlchemy sees them; migrations are what makes them."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    Column,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    func,
)

metadata = MetaData()


class VoiceState(StrEnum):
    """Where a voice is in its life."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"


VOICE_TRANSITIONS: dict[VoiceState, frozenset[VoiceState]] = {
    VoiceState.PENDING: frozenset({VoiceState.READY, VoiceState.FAILED, VoiceState.DELETED}),
    VoiceState.READY: frozenset({VoiceState.DELETED}),
    VoiceState.FAILED: frozenset({VoiceState.DELETED}),
    VoiceState.DELETED: frozenset(),
}


def _created() -> Column[object]:
    return Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now())


def _tenant() -> Column[object]:
    return Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False)


tenants = Table(
    "tenants",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    _created(),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    _created(),
    Column("revoked_at", DateTime(timezone=True)),
)

data_keys = Table(
    "data_keys",
    metadata,
    Column("owner_id", Uuid, primary_key=True),
    _tenant(),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("root_key_id", Text, nullable=False),
    _created(),
)

consents = Table(
    "consents",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("sealed", LargeBinary, nullable=False),
    Column("granted_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

voices = Table(
    "voices",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("consent_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("error_code", Text),
    Column("error_message", Text),
    _created(),
    Column("deleted_at", DateTime(timezone=True)),
)

voice_versions = Table(
    "voice_versions",
    metadata,
    Column("voice_id", Uuid, primary_key=True),
    Column("version", Integer, primary_key=True),
    _tenant(),
    Column("upload", LargeBinary),
    Column("recording", LargeBinary),
    Column("embedding", LargeBinary),
    Column("duration_s", Float),
    _created(),
)
