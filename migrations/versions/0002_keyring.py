"""Keys under tenant keys, in a schema of their own; scopes, and an operator who sees no voices.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"

CURRENT_TENANT = "nullif(current_setting('app.tenant', true), '')::uuid"
NAMED_KEY = "decode(nullif(current_setting('app.key_hash', true), ''), 'hex')"


def upgrade() -> None:
    """Make the keyring, put every data key under a key of its tenant, and let the operator in."""
    _change_tenants_and_keys()
    _make_keyring()
    _fence("keyring.tenant_keys")
    _nest_data_keys()
    _open_named_keys()
    _grant(context.config.attributes["service_role"], context.config.attributes["operator_role"])


def downgrade() -> None:
    """Back to data keys under the root key; keys end whose limits the older release would not keep."""
    _flatten_data_keys()
    op.execute("ALTER TABLE keyring.data_keys SET SCHEMA public")
    op.execute("ALTER TABLE data_keys ADD FOREIGN KEY (tenant_id) REFERENCES tenants (id)")
    op.execute("DROP SCHEMA keyring CASCADE")
    _restore_tenants_and_keys()


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True))


def _created(name: str = "created_at") -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _change_tenants_and_keys() -> None:
    op.add_column("tenants", sa.Column("state", sa.Text, nullable=False, server_default="active"))
    op.add_column("tenants", sa.Column("limits", postgresql.JSONB, nullable=False, server_default="{}"))
    op.add_column("tenants", sa.Column("retention_days", sa.Integer, nullable=False, server_default="365"))
    op.add_column("tenants", _time("deleted_at"))
    op.create_check_constraint("tenant_state", "tenants", "state IN ('active', 'suspended', 'deleting', 'deleted')")
    # Three years is the law's bound (740 ILCS 14/15); the default is shorter, and nobody may exceed it.
    op.create_check_constraint("retention", "tenants", "retention_days BETWEEN 1 AND 1095")
    op.alter_column("api_keys", "tenant_id", nullable=True)
    op.add_column("api_keys", sa.Column("name", sa.Text, nullable=False, server_default=""))
    op.add_column(
        "api_keys",
        sa.Column("scopes", sa.ARRAY(sa.Text), nullable=False, server_default=sa.text("'{speak,enrol,admin}'")),
    )
    op.alter_column("api_keys", "scopes", server_default=None)
    op.add_column("api_keys", _time("expires_at"))
    op.add_column("api_keys", sa.Column("replaced_by", sa.Uuid))
    op.create_check_constraint(
        "scopes",
        "api_keys",
        "scopes <@ ARRAY['speak', 'enrol', 'admin', 'operator'] AND (tenant_id IS NULL) = ('operator' = ANY (scopes))"
        " AND cardinality(scopes) > 0",
    )
    op.create_index("keys_of_a_tenant", "api_keys", ["tenant_id", "created_at", "id"])


def _make_keyring() -> None:
    op.execute("CREATE SCHEMA keyring")
    op.create_table(
        "tenant_keys",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("root_key_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="active"),
        _created(),
        sa.UniqueConstraint("tenant_id", "id"),
        sa.CheckConstraint("state IN ('active', 'retired')"),
        schema="keyring",
    )
    op.create_index(
        "one_active_key",
        "tenant_keys",
        ["tenant_id"],
        unique=True,
        schema="keyring",
        postgresql_where=sa.text("state = 'active'"),
    )
    # A keyring stands alone: it is kept, and brought back, without the data.
    op.execute("ALTER TABLE data_keys DROP CONSTRAINT data_keys_tenant_id_fkey")
    op.execute("ALTER TABLE data_keys SET SCHEMA keyring")
    op.add_column("data_keys", sa.Column("tenant_key_id", sa.Uuid), schema="keyring")
    op.create_foreign_key(
        "its_tenant_key",
        "data_keys",
        "tenant_keys",
        ["tenant_id", "tenant_key_id"],
        ["tenant_id", "id"],
        source_schema="keyring",
        referent_schema="keyring",
        ondelete="CASCADE",
    )
    op.create_index("data_keys_of_a_tenant_key", "data_keys", ["tenant_id", "tenant_key_id"], schema="keyring")
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary),
        sa.Column("root_key_id", sa.Text),
        _created(),
        _time("retired_at"),
        schema="keyring",
    )


def _fence(table: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY own_rows ON {table} USING (tenant_id = {CURRENT_TENANT})")


def _nest_data_keys() -> None:
    for table in ("tenant_keys", "data_keys"):
        op.execute(f"ALTER TABLE keyring.{table} NO FORCE ROW LEVEL SECURITY")
    context.config.attributes["nest_keys"](op.get_bind())
    for table in ("tenant_keys", "data_keys"):
        op.execute(f"ALTER TABLE keyring.{table} FORCE ROW LEVEL SECURITY")
    op.alter_column("data_keys", "tenant_key_id", nullable=False, schema="keyring")
    op.drop_column("data_keys", "root_key_id", schema="keyring")


def _flatten_data_keys() -> None:
    for table in ("tenant_keys", "data_keys"):
        op.execute(f"ALTER TABLE keyring.{table} NO FORCE ROW LEVEL SECURITY")
    op.add_column("data_keys", sa.Column("root_key_id", sa.Text), schema="keyring")
    context.config.attributes["flatten_keys"](op.get_bind())
    op.execute("ALTER TABLE keyring.data_keys FORCE ROW LEVEL SECURITY")
    op.alter_column("data_keys", "root_key_id", nullable=False, schema="keyring")
    op.drop_column("data_keys", "tenant_key_id", schema="keyring")


def _open_named_keys() -> None:
    """Before its tenant is known, a request sees the one key whose hash it can name, and that key's tenant."""
    op.execute("DROP POLICY named_key ON api_keys")
    op.execute(f"CREATE POLICY named_key ON api_keys FOR SELECT USING (key_hash = {NAMED_KEY})")
    its_tenant = f"(SELECT k.tenant_id FROM api_keys k WHERE k.key_hash = {NAMED_KEY})"  # noqa: S608
    op.execute(f"CREATE POLICY named_key ON tenants FOR SELECT USING (id = {its_tenant})")


def _grant(service: str, operator: str) -> None:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", operator):
        raise ValueError(f"operator_role {operator!r} is not a plain lower-case name")
    op.execute(
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{operator}') THEN"
        f" CREATE ROLE {operator} NOLOGIN NOSUPERUSER NOBYPASSRLS; END IF; END $$"
    )
    _let_step_over(service, operator)
    op.execute(f"GRANT USAGE ON SCHEMA keyring TO {service}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON keyring.tenant_keys, keyring.data_keys TO {service}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE ON keyring.signing_keys TO {service}")
    op.execute(f"GRANT INSERT, UPDATE ON api_keys TO {service}")
    # Its limits are what the operator grants a tenant, not what a tenant takes.
    op.execute(f"GRANT UPDATE (name, state, retention_days, deleted_at) ON tenants TO {service}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE ON tenants, api_keys TO {operator}")
    op.execute(f"GRANT SELECT ON alembic_version TO {operator}")
    for table in ("tenants", "api_keys"):
        op.execute(f"CREATE POLICY operator_rows ON {table} TO {operator} USING (true)")


def _let_step_over(service: str, operator: str) -> None:
    """Whoever may be the service may become the operator, who sees tenants and keys, and nobody's voice.

    May become, and is not: a membership that inherits would open the operator's policies in every transaction.
    """
    op.execute(
        f"DO $$ BEGIN IF pg_has_role('{service}', '{operator}', 'MEMBER')"
        f" AND NOT pg_has_role('{service}', '{operator}', 'USAGE') THEN RETURN; END IF;"
        " IF current_setting('server_version_num')::int >= 160000"
        f" THEN EXECUTE 'GRANT {operator} TO {service} WITH INHERIT FALSE, SET TRUE';"
        f" ELSE EXECUTE 'ALTER ROLE {service} NOINHERIT'; EXECUTE 'GRANT {operator} TO {service}';"
        " END IF; END $$"
    )


def _restore_tenants_and_keys() -> None:
    op.execute("DROP POLICY operator_rows ON tenants")
    op.execute("DROP POLICY operator_rows ON api_keys")
    op.execute("DROP POLICY named_key ON tenants")
    op.execute("DROP POLICY named_key ON api_keys")
    op.execute(
        "CREATE POLICY named_key ON api_keys FOR SELECT"
        " USING (encode(key_hash, 'hex') = nullif(current_setting('app.key_hash', true), ''))"
    )
    op.execute("DELETE FROM api_keys WHERE tenant_id IS NULL")
    op.execute(
        "UPDATE api_keys k SET revoked_at = now() FROM tenants t WHERE t.id = k.tenant_id AND k.revoked_at IS NULL"
        " AND (t.state <> 'active' OR k.expires_at IS NOT NULL OR NOT k.scopes @> ARRAY['speak', 'enrol'])"
    )
    op.drop_constraint("scopes", "api_keys")
    op.drop_index("keys_of_a_tenant", "api_keys")
    for name in ("name", "scopes", "expires_at", "replaced_by"):
        op.drop_column("api_keys", name)
    op.alter_column("api_keys", "tenant_id", nullable=False)
    for constraint in ("tenant_state", "retention"):
        op.drop_constraint(constraint, "tenants")
    for name in ("state", "limits", "retention_days", "deleted_at"):
        op.drop_column("tenants", name)
    service, operator = (context.config.attributes[name] for name in ("service_role", "operator_role"))
    op.execute(f"REVOKE INSERT, UPDATE ON api_keys FROM {service}")
    op.execute(f"REVOKE UPDATE ON tenants FROM {service}")
    op.execute(f"REVOKE ALL ON tenants, api_keys, alembic_version FROM {operator}")
