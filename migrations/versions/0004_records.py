"""What was used, what was asked for, what was deleted, and who did it.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"

CURRENT_TENANT = "nullif(current_setting('app.tenant', true), '')::uuid"
FENCED = ("usage", "idempotency_keys", "deletions", "audit_log", "audit_checkpoints")


def upgrade() -> None:
    """Make the tables, then the policies, then the grants."""
    _make_records()
    for table in FENCED:
        _fence(table)
    _keep_the_audit_log()
    _grant(context.config.attributes["service_role"], context.config.attributes["operator_role"])


def downgrade() -> None:
    """The records go: export them first."""
    for table in (*FENCED, "speech_log_positions"):
        op.drop_table(table)
    op.execute("DROP FUNCTION refuse_change()")


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True))


def _created(name: str = "created_at") -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _tenant(*, primary_key: bool = False) -> sa.Column[object]:
    return sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False, primary_key=primary_key)


def _make_records() -> None:
    counts = [
        sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        for name in ("contexts", "sentences", "characters", "audio_ms")
    ]
    op.create_table(
        "usage",
        _tenant(primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("voice_id", sa.Uuid, primary_key=True),
        *counts,
    )
    op.create_table(
        "idempotency_keys",
        _tenant(primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("object_id", sa.Uuid, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("response", postgresql.JSONB),
        _created("started_at"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("idempotency_keys_by_expiry", "idempotency_keys", ["tenant_id", "expires_at"])
    op.create_index("idempotency_keys_by_object", "idempotency_keys", ["tenant_id", "object_id"])
    op.create_table(
        "deletions",
        sa.Column("id", sa.Uuid, primary_key=True),
        _tenant(),
        sa.Column("object_kind", sa.Text, nullable=False),
        sa.Column("object_id", sa.Uuid, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="running"),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        _created("requested_at"),
        _time("completed_at"),
        sa.Column("stores", postgresql.JSONB, nullable=False, server_default="{}"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        _created("next_attempt_at"),
        sa.Column("receipt", sa.Text),
        # Whoever comes second is told of the first one's deletion.
        sa.UniqueConstraint("tenant_id", "object_kind", "object_id"),
        sa.CheckConstraint("state IN ('running', 'partial', 'done')"),
        sa.CheckConstraint("object_kind IN ('voice', 'consent', 'tenant')"),
    )
    op.create_index(
        "deletions_under_way",
        "deletions",
        ["tenant_id", "next_attempt_at"],
        postgresql_where=sa.text("state <> 'done'"),
    )
    op.create_index("deletions_listed", "deletions", ["tenant_id", sa.text("requested_at DESC"), sa.text("id DESC")])
    _make_audit_log()
    op.create_table(
        "speech_log_positions",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("position", sa.Text, nullable=False),
    )


def _make_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("tenant_id", sa.Uuid, primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("actor", "action", "object_kind", "object_id", "origin")
        ),
        sa.Column("detail", postgresql.JSONB, nullable=False),
        sa.Column("previous_hash", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
    op.create_index("audit_log_by_object", "audit_log", ["tenant_id", "object_id", "sequence"])
    op.create_index("audit_log_by_time", "audit_log", ["tenant_id", "at"])
    op.create_table(
        "audit_checkpoints",
        sa.Column("tenant_id", sa.Uuid, primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("signed", sa.Text, nullable=False),
        _created(),
    )


def _fence(table: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY own_rows ON {table} USING (tenant_id = {CURRENT_TENANT})")


def _keep_the_audit_log() -> None:
    """Not even the tables' owner changes what stands in the log, unless they take the trigger away first."""
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    for table in ("audit_log", "audit_checkpoints"):
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )


def _grant(service: str, operator: str) -> None:
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON usage, idempotency_keys TO {service}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE ON deletions, speech_log_positions TO {service}")
    op.execute(f"GRANT SELECT, INSERT ON audit_log, audit_checkpoints TO {service}, {operator}")
    op.execute(f"GRANT SELECT ON deletions TO {operator}")
