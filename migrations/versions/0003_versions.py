"""Consents with terms, versions that live their own lives, aliases.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"

CURRENT_TENANT = "nullif(current_setting('app.tenant', true), '')::uuid"
CHANGED = ("consents", "voices", "voice_versions")


def upgrade() -> None:
    """Give consents their terms and versions their state, then make the aliases."""
    for table in CHANGED:
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    _change_consents()
    _change_voices()
    for table in CHANGED:
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    _make_aliases()
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON voice_aliases TO {context.config.attributes['service_role']}")


def downgrade() -> None:
    """Back to one version a voice; recordings that wait to replace one, aliases and times to come of consents are lost.

    Nothing that was ended begins to speak again: see `_end_what_has_no_form`.
    """
    op.drop_table("voice_aliases")
    for table in (*CHANGED, "keyring.data_keys"):
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    _end_what_has_no_form()
    _restore_voices()
    _restore_consents()
    for table in (*CHANGED, "keyring.data_keys"):
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True))


def _created(name: str = "created_at") -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _change_consents() -> None:
    op.add_column("consents", sa.Column("state", sa.Text, nullable=False, server_default="active"))
    op.create_check_constraint("consent_state", "consents", "state IN ('active', 'withdrawn', 'expired', 'deleted')")
    for name, earlier in (("statement_version", "unversioned"), ("language", "en"), ("purpose", "voice cloning")):
        op.add_column("consents", sa.Column(name, sa.Text, nullable=False, server_default=earlier))
        op.alter_column("consents", name, server_default=None)
    op.alter_column("consents", "sealed", nullable=True)
    # As this migration's way down leaves those that permit nothing any more.
    op.execute("UPDATE consents SET state = 'deleted', sealed = NULL WHERE sealed = ''::bytea")
    op.add_column("consents", sa.Column("recording", sa.LargeBinary))
    op.add_column("consents", _time("expires_at"))
    op.add_column("consents", _time("withdrawn_at"))
    op.create_index("consents_of_a_tenant", "consents", ["tenant_id", sa.text("granted_at DESC"), sa.text("id DESC")])
    op.create_index(
        "consents_that_expire",
        "consents",
        ["tenant_id", "expires_at"],
        postgresql_where=sa.text("state = 'active' AND expires_at IS NOT NULL"),
    )


def _change_voices() -> None:
    op.add_column("voices", sa.Column("latest_version", sa.Integer, nullable=False, server_default="1"))
    op.alter_column("voices", "latest_version", server_default=None)
    op.add_column("voices", sa.Column("revision", sa.Integer, nullable=False, server_default="1"))
    op.add_column("voices", _created("updated_at"))
    op.add_column("voices", _created("last_used_at"))
    op.execute("ALTER TABLE voices DROP CONSTRAINT voices_state_check")
    op.create_check_constraint(
        "voice_state", "voices", "state IN ('pending', 'ready', 'failed', 'disabled', 'deleting', 'deleted')"
    )
    for column in (
        sa.Column("state", sa.Text, nullable=False, server_default="pending"),
        sa.Column("stage", sa.Text, nullable=False, server_default="waiting"),
        sa.Column("consent_id", sa.Uuid),
        sa.Column("quality", sa.Integer),
        sa.Column("quality_parts", postgresql.JSONB),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        _time("finished_at"),
        _time("claimed_until"),
    ):
        op.add_column("voice_versions", column)
    op.alter_column("voice_versions", "state", server_default=None)
    _move_versions()
    op.alter_column("voice_versions", "consent_id", nullable=False)
    op.create_check_constraint("version_state", "voice_versions", "state IN ('pending', 'ready', 'failed', 'retired')")
    op.create_foreign_key("its_consent", "voice_versions", "consents", ["tenant_id", "consent_id"], ["tenant_id", "id"])
    op.drop_column("voices", "error_code")
    op.drop_column("voices", "error_message")
    _index_voices()


def _move_versions() -> None:
    """A failed voice had no version row left, and its reason stood with the voice.

    One that has its embedding all the same was disabled before this migration was undone.
    """
    op.execute(
        "UPDATE voices o SET state = 'disabled', error_code = NULL, error_message = NULL FROM voice_versions v"
        " WHERE v.voice_id = o.id AND v.version = o.version AND o.state = 'failed' AND v.embedding IS NOT NULL"
    )
    op.execute(
        "INSERT INTO voice_versions (voice_id, version, tenant_id, state, stage, consent_id, finished_at)"
        " SELECT id, version, tenant_id, 'failed', 'ended', consent_id, created_at FROM voices WHERE state = 'failed'"
        " ON CONFLICT DO NOTHING"
    )
    op.execute(
        "UPDATE voice_versions v SET state = CASE WHEN o.state = 'disabled' THEN 'ready' ELSE o.state END,"
        " consent_id = o.consent_id, error_code = o.error_code,"
        " error_message = o.error_message, stage = CASE WHEN o.state = 'pending' THEN 'waiting' ELSE 'ended' END,"
        " finished_at = CASE WHEN o.state = 'pending' THEN NULL ELSE v.created_at END"
        " FROM voices o WHERE o.id = v.voice_id"
    )
    op.execute("UPDATE voices SET latest_version = version")
    op.execute("UPDATE voices SET version = 0 WHERE state IN ('pending', 'failed')")


def _index_voices() -> None:
    op.drop_index("voices_of_a_tenant", "voices")
    op.create_index(
        "voices_listed",
        "voices",
        ["tenant_id", sa.text("created_at DESC"), sa.text("id DESC")],
        postgresql_where=sa.text("state <> 'deleted'"),
    )
    op.create_index(
        "voices_by_name",
        "voices",
        ["tenant_id", "name", sa.text("created_at DESC"), sa.text("id DESC")],
        postgresql_where=sa.text("state <> 'deleted'"),
    )
    op.create_index(
        "voices_by_last_use", "voices", ["tenant_id", "last_used_at"], postgresql_where=sa.text("state <> 'deleted'")
    )
    op.create_index("voices_of_a_consent", "voices", ["tenant_id", "consent_id"])
    op.create_index("versions_of_a_consent", "voice_versions", ["tenant_id", "consent_id"])
    op.create_index(
        "enrolments_under_way",
        "voice_versions",
        ["tenant_id", "created_at"],
        postgresql_where=sa.text("state = 'pending'"),
    )


def _make_aliases() -> None:
    op.create_table(
        "voice_aliases",
        sa.Column("tenant_id", sa.Uuid, sa.ForeignKey("tenants.id"), primary_key=True),
        sa.Column("alias", sa.Text, primary_key=True),
        sa.Column("voice_id", sa.Uuid, nullable=False),
        _created(),
        sa.ForeignKeyConstraint(["tenant_id", "voice_id"], ["voices.tenant_id", "voices.id"]),
    )
    op.create_index("aliases_of_a_voice", "voice_aliases", ["tenant_id", "voice_id"])
    op.execute("ALTER TABLE voice_aliases ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE voice_aliases FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY own_rows ON voice_aliases USING (tenant_id = {CURRENT_TENANT})")


def _end_what_has_no_form() -> None:
    """Consents that permit nothing any more, what hangs on them, and deletions under way: the keys go with them."""
    op.execute("UPDATE consents SET sealed = NULL WHERE state <> 'active' OR expires_at <= now()")
    op.execute(
        "UPDATE voices SET state = 'deleted', name = '', deleted_at = now() WHERE state = 'deleting'"
        " OR state <> 'deleted' AND consent_id IN (SELECT id FROM consents WHERE sealed IS NULL)"
    )
    op.execute(
        "DELETE FROM keyring.data_keys WHERE owner_id IN (SELECT id FROM voices WHERE state = 'deleted'"
        " UNION SELECT id FROM consents WHERE sealed IS NULL)"
    )


def _restore_voices() -> None:
    op.add_column("voices", sa.Column("error_code", sa.Text))
    op.add_column("voices", sa.Column("error_message", sa.Text))
    op.execute(
        "UPDATE voices o SET error_code = v.error_code, error_message = v.error_message FROM voice_versions v"
        " WHERE v.voice_id = o.id AND v.version = o.latest_version AND o.state = 'failed'"
    )
    op.execute("UPDATE voices SET version = latest_version WHERE version = 0")
    op.execute(
        "DELETE FROM voice_versions v USING voices o WHERE o.id = v.voice_id"
        " AND (v.version <> o.version OR o.state IN ('failed', 'deleted'))"
    )
    op.execute(
        "UPDATE voices SET state = 'failed', error_code = 'disabled', error_message = 'the voice was disabled'"
        " WHERE state = 'disabled'"
    )
    for index in ("voices_listed", "voices_by_name", "voices_by_last_use", "voices_of_a_consent"):
        op.drop_index(index, "voices")
    for index in ("versions_of_a_consent", "enrolments_under_way"):
        op.drop_index(index, "voice_versions")
    op.drop_constraint("its_consent", "voice_versions")
    for name in ("state", "stage", "consent_id", "quality", "quality_parts", "error_code", "error_message"):
        op.drop_column("voice_versions", name)
    op.drop_column("voice_versions", "finished_at")
    op.drop_column("voice_versions", "claimed_until")
    for name in ("latest_version", "revision", "updated_at", "last_used_at"):
        op.drop_column("voices", name)
    op.drop_constraint("voice_state", "voices")
    op.execute(
        "ALTER TABLE voices ADD CONSTRAINT voices_state_check"
        " CHECK (state IN ('pending', 'ready', 'failed', 'deleted'))"
    )
    op.create_index("voices_of_a_tenant", "voices", ["tenant_id", "created_at"])


def _restore_consents() -> None:
    op.execute("UPDATE consents SET sealed = ''::bytea WHERE sealed IS NULL")
    op.alter_column("consents", "sealed", nullable=False)
    for index in ("consents_of_a_tenant", "consents_that_expire"):
        op.drop_index(index, "consents")
    for name in ("state", "statement_version", "language", "purpose", "recording", "expires_at", "withdrawn_at"):
        op.drop_column("consents", name)
