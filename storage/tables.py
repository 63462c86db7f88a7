"""The tables, as SQLAlchemy sees them; migrations are what makes them.

Everything with a `tenant_id` is fenced by row-level security. What unlocks what was sealed lies in a schema of its own,
`keyring`, so that a backup of the data holds none of it (docs/privacy.md, "Backups").
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Date,
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
from sqlalchemy.dialects.postgresql import JSONB

KEYRING = "keyring"

metadata = MetaData()


def _time(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True))


def _created(name: str = "created_at") -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


def _tenant(*, primary_key: bool = False) -> Column[object]:
    return Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False, primary_key=primary_key)


tenants = Table(
    "tenants",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False, server_default="active"),
    Column("limits", JSONB, nullable=False, server_default="{}"),
    Column("retention_days", Integer, nullable=False, server_default="365"),
    _created(),
    _time("deleted_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    # None: the operator's own key.
    Column("tenant_id", Uuid, ForeignKey("tenants.id")),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("name", Text, nullable=False, server_default=""),
    Column("scopes", ARRAY(Text), nullable=False),
    _created(),
    _time("expires_at"),
    _time("revoked_at"),
    Column("replaced_by", Uuid),
)

tenant_keys = Table(
    "tenant_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("root_key_id", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="active"),
    _created(),
    schema=KEYRING,
)

data_keys = Table(
    "data_keys",
    metadata,
    Column("owner_id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("tenant_key_id", Uuid, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    _created(),
    schema=KEYRING,
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("public_key", LargeBinary, nullable=False),
    # None once the key signs no more; what it signed is verified for ever.
    Column("wrapped_key", LargeBinary),
    Column("root_key_id", Text),
    _created(),
    _time("retired_at"),
    schema=KEYRING,
)

consents = Table(
    "consents",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("state", Text, nullable=False, server_default="active"),
    Column("statement_version", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("sealed", LargeBinary),
    Column("recording", LargeBinary),
    _created("granted_at"),
    _time("expires_at"),
    _time("withdrawn_at"),
)

voices = Table(
    "voices",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("consent_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    # The version that speaks, 0 before there is one; and the newest there is, which may be pending or have failed.
    Column("version", Integer, nullable=False),
    Column("latest_version", Integer, nullable=False),
    # Counts changes; the entity tag of the API.
    Column("revision", Integer, nullable=False, server_default="1"),
    _created(),
    _created("updated_at"),
    _created("last_used_at"),
    _time("deleted_at"),
)

voice_versions = Table(
    "voice_versions",
    metadata,
    Column("voice_id", Uuid, primary_key=True),
    Column("version", Integer, primary_key=True),
    _tenant(),
    Column("state", Text, nullable=False),
    Column("stage", Text, nullable=False, server_default="waiting"),
    Column("consent_id", Uuid, nullable=False),
    Column("upload", LargeBinary),
    Column("recording", LargeBinary),
    Column("embedding", LargeBinary),
    Column("duration_s", Float),
    Column("quality", Integer),
    Column("quality_parts", JSONB),
    Column("error_code", Text),
    Column("error_message", Text),
    _created(),
    _time("finished_at"),
    # Until when whoever enrols it has it for himself.
    _time("claimed_until"),
)

voice_aliases = Table(
    "voice_aliases",
    metadata,
    _tenant(primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("voice_id", Uuid, nullable=False),
    _created(),
)

usage = Table(
    "usage",
    metadata,
    _tenant(primary_key=True),
    Column("day", Date, primary_key=True),
    Column("voice_id", Uuid, primary_key=True),
    Column("contexts", BigInteger, nullable=False, server_default="0"),
    Column("sentences", BigInteger, nullable=False, server_default="0"),
    Column("characters", BigInteger, nullable=False, server_default="0"),
    Column("audio_ms", BigInteger, nullable=False, server_default="0"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    _tenant(primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("object_id", Uuid, nullable=False),
    Column("status", Integer),
    Column("response", JSONB),
    _created("started_at"),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)

deletions = Table(
    "deletions",
    metadata,
    Column("id", Uuid, primary_key=True),
    _tenant(),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Uuid, nullable=False),
    Column("state", Text, nullable=False, server_default="running"),
    Column("reason", Text, nullable=False),
    Column("requested_by", Text, nullable=False),
    _created("requested_at"),
    _time("completed_at"),
    Column("stores", JSONB, nullable=False, server_default="{}"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("receipt", Text),
)

# Without foreign keys: what was done to a tenant stays on record when the tenant is gone, and what the operator did to
# the whole service stands under the nil id.
audit_log = Table(
    "audit_log",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("detail", JSONB, nullable=False),
    Column("previous_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

audit_checkpoints = Table(
    "audit_checkpoints",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("signed", Text, nullable=False),
    _created(),
)

speech_log_positions = Table(
    "speech_log_positions",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("position", Text, nullable=False),
)
