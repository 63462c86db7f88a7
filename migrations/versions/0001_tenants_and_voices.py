"""Tenants, keys, consents and voices, each tenant's rows fenced off by row-level security.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None

FENCED = ("data_keys", "consents", "voices", "voice_versions")
CURRENT_TENANT = "nullif(current_setting('app.tenant', true), '')::uuid"


def upgrade() -> None:
    """Make the tables, then the policies, then the service role's grants."""
    _make_tables()
    _fence()
    _grant(context.config.attributes["service_role"])


def downgrade() -> None:
    """Everything goes; the role stays, since other databases of the server may use it."""
    for table in ("voice_versions", "voices", "consents", "data_keys", "api_keys", "tenants"):
        op.drop_table(table)


def _created(name: str = "created_at") -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _tenant() -> sa.Column[object]:
    return sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), nullable=False)


def _make_tables() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        _created(),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid, primary_key=True),
        _tenant(),
        sa.Column("key_hash", sa.LargeBinary, nullable=False, unique=True),
        _created(),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "data_keys",
        sa.Column("owner_id", sa.Uuid, primary_key=True),
        _tenant(),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("root_key_id", sa.Text, nullable=False),
        _created(),
    )
    op.create_table(
        "consents",
        sa.Column("id", sa.Uuid, primary_key=True),
        _tenant(),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        _created("granted_at"),
        sa.UniqueConstraint("tenant_id", "id"),
    )
    _make_voices()


def _make_voices() -> None:
    op.create_table(
        "voices",
        sa.Column("id", sa.Uuid, primary_key=True),
        _tenant(),
        sa.Column("consent_id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        _created(),
        sa.Column("deleted_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("tenant_id", "id"),
        # Foreign keys are checked without row-level security, so each names the tenant as well.
        sa.ForeignKeyConstraint(["tenant_id", "consent_id"], ["consents.tenant_id", "consents.id"]),
        sa.CheckConstraint("state IN ('pending', 'ready', 'failed', 'deleted')"),
    )
    op.create_index("voices_of_a_tenant", "voices", ["tenant_id", "created_at"])
    op.create_table(
        "voice_versions",
        sa.Column("voice_id", sa.Uuid, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        _tenant(),
        sa.Column("upload", sa.LargeBinary),
        sa.Column("recording", sa.LargeBinary),
        sa.Column("embedding", sa.LargeBinary),
        sa.Column("duration_s", sa.Float),
        _created(),
        sa.ForeignKeyConstraint(["tenant_id", "voice_id"], ["voices.tenant_id", "voices.id"]),
    )


def _fence() -> None:
    for table in FENCED:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY own_rows ON {table} USING (tenant_id = {CURRENT_TENANT})")
    # Their owner, who is the operator, may see all tenants and keys; the service may not.
    for table, column in (("tenants", "id"), ("api_keys", "tenant_id")):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY own_rows ON {table} USING ({column} = {CURRENT_TENANT})")
    # Before its tenant is known, a request may see the one key row whose hash it can name.
    op.execute(
        "CREATE POLICY named_key ON api_keys FOR SELECT"
        " USING (encode(key_hash, 'hex') = nullif(current_setting('app.key_hash', true), ''))"
    )


def _grant(role: str) -> None:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", role):
        raise ValueError(f"service_role {role!r} is not a plain lower-case name")
    op.execute(
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN"
        f" CREATE ROLE {role} NOLOGIN NOSUPERUSER NOBYPASSRLS; END IF; END $$"
    )
    # With a single login for everything, the services step down from it to the role.
    op.execute(
        f"DO $$ BEGIN IF NOT pg_has_role(current_user, '{role}', 'MEMBER') THEN"
        f" EXECUTE format('GRANT {role} TO %I', current_user); END IF; END $$"
    )
    op.execute(f"GRANT SELECT ON tenants, api_keys, alembic_version TO {role}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(FENCED)} TO {role}")
