"""Rows as the first release wrote them: data keys under the root key itself, one version a voice."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from storage.encryption.envelope import Kind, Label, new_key, seal
from storage.encryption.secrets import SecretBytes
from storage.settings import Settings
from storage.tenancy.api_keys import KEY_PREFIX, hash_key

UPLOAD = b"RIFF upload" + bytes(range(200))
RECORDING = b"fLaC recording" + bytes(range(200))
EMBEDDING = bytes(range(256)) * 4
STATEMENT = {"subject": "A. Person", "statement": "I agree that my voice is cloned."}


@dataclass(frozen=True, slots=True)
class Customer:
    """One tenant's ids."""

    tenant: UUID
    key: str
    revoked: str
    consent: UUID
    pending: UUID
    ready: UUID
    failed: UUID
    deleted: UUID


class FirstRelease:
    """Writes what the first release wrote, sealed as it did."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._connection = connection
        self._root = SecretBytes(base64.b64decode(settings.root_key.get_secret_value()))

    def add_customer(self, name: str) -> Customer:
        """A tenant with a key that works and one that was revoked, a consent, and a voice in each state."""
        tenant, consent = uuid4(), uuid4()
        self._insert("tenants", id=tenant, name=name)
        key, revoked = f"{KEY_PREFIX}{name}-works", f"{KEY_PREFIX}{name}-revoked"
        self._insert("api_keys", id=uuid4(), tenant_id=tenant, key_hash=hash_key(key))
        self._insert("api_keys", id=uuid4(), tenant_id=tenant, key_hash=hash_key(revoked), revoked_at="2026-01-01")
        data_key = self._add_data_key(tenant, consent)
        sealed = seal(data_key, json.dumps(STATEMENT).encode(), Label(tenant, consent, Kind.CONSENT))
        self._insert("consents", id=consent, tenant_id=tenant, sealed=sealed)
        voices = {state: self._add_voice(tenant, consent, state) for state in ("pending", "ready", "failed", "deleted")}
        return Customer(tenant, key, revoked, consent, **voices)

    def _add_voice(self, tenant: UUID, consent: UUID, state: str) -> UUID:
        voice = uuid4()
        row: dict[str, object] = {"id": voice, "tenant_id": tenant, "consent_id": consent, "version": 1}
        row |= {"state": state, "name": "" if state == "deleted" else f"{state} voice"}
        if state == "failed":
            row |= {"error_code": "recording_silent", "error_message": "it is silent"}
        if state == "deleted":
            row |= {"deleted_at": "2026-01-01"}
        self._insert("voices", **row)
        held = {"pending": {Kind.UPLOAD: UPLOAD}, "ready": {Kind.RECORDING: RECORDING, Kind.EMBEDDING: EMBEDDING}}
        if state in held:
            data_key = self._add_data_key(tenant, voice)
            sealed = {
                kind.value: seal(data_key, content, Label(tenant, voice, kind, 1))
                for kind, content in held[state].items()
            }
            self._insert("voice_versions", voice_id=voice, version=1, tenant_id=tenant, **sealed)
        return voice

    def _add_data_key(self, tenant: UUID, owner: UUID) -> SecretBytes:
        data_key = new_key()
        wrapped = seal(self._root, data_key.reveal(), Label(tenant, owner, Kind.DATA_KEY))
        name = hashlib.sha256(b"timbrelay root key id" + self._root.reveal()).hexdigest()[:16]
        self._insert("data_keys", owner_id=owner, tenant_id=tenant, wrapped_key=wrapped, root_key_id=name)
        return data_key

    def _insert(self, table: str, **row: object) -> None:
        columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        self._connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({places})"), row)  # noqa: S608
