"""Consents: who allowed what. The terms are plain; the statement names a person, sealed with its consent's key."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label, seal, unseal
from storage.encryption.keyring import Keyring, destroy_data_key
from storage.errors import IllegalTransition
from storage.paging import Page, Position, Slice, cut, turn_to
from storage.states import CONSENT_TRANSITIONS, ConsentState, VersionState, VoiceState, check_transition
from storage.tables import consents, voice_versions, voices
from storage.tenancy.tenants import hold_tenant
from storage.voices.records import change_voice, lock_voice


@dataclass(frozen=True, slots=True)
class Terms:
    """What was agreed to, without a name in it."""

    statement_version: str
    language: str
    purpose: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Statement:
    """Who agreed, and to which words."""

    signer: str
    statement: str

    def __repr__(self) -> str:
        return "Statement(**********)"


@dataclass(frozen=True, slots=True)
class Consent:
    """A person's permission to clone their voice, without the person."""

    id: UUID
    state: ConsentState
    terms: Terms
    granted_at: datetime
    withdrawn_at: datetime | None
    has_recording: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """A new recording of a voice that will not be enrolled, since its consent has ended."""

    voice: UUID
    version: int
    code: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What the end of a consent means for voices: those to be deleted, and recordings that others have lost."""

    voices: list[UUID]
    rejected: list[Rejected]


_COLUMNS: tuple[Any, ...] = (
    *(column for column in consents.c if column.name not in ("sealed", "recording")),
    consents.c.recording.is_not(None).label("has_recording"),
)


async def grant_consent(
    connection: AsyncConnection,
    keyring: Keyring,
    tenant: UUID,
    terms: Terms,
    statement: Statement,
    *,
    recording: bytes | None = None,
    consent_id: UUID | None = None,
) -> Consent:
    """Keep a consent, and the recording in which it was spoken; raises IllegalTransition while the tenant is going."""
    await hold_tenant(connection, tenant)
    made = consent_id or uuid4()
    data_key = await keyring.make_data_key(connection, tenant, made)
    sealed = seal(data_key, json.dumps(asdict(statement)).encode(), Label(tenant, made, Kind.CONSENT))
    spoken = None if recording is None else seal(data_key, recording, Label(tenant, made, Kind.CONSENT_RECORDING))
    row = {"id": made, "tenant_id": tenant, "sealed": sealed, "recording": spoken, **asdict(terms)}
    statement_of_row = insert(consents).values(**row).returning(*_COLUMNS)
    return _consent((await connection.execute(statement_of_row)).one())


async def find_consent(
    connection: AsyncConnection, tenant: UUID, consent_id: UUID, *, deleted: bool = False
) -> Consent | None:
    """The tenant's consent; None when there is none with this id, or it was deleted and deleted ones do not count."""
    wanted = (consents.c.tenant_id == tenant,) if deleted else _kept(tenant)
    query = select(*_COLUMNS).where(*wanted, consents.c.id == consent_id)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _consent(row)


async def list_consents(connection: AsyncConnection, tenant: UUID, page: Page) -> Slice[Consent]:
    """The tenant's consents, newest first."""
    query = select(*_COLUMNS).where(*_kept(tenant))
    rows = (await connection.execute(turn_to(query, page, consents.c.granted_at, consents.c.id))).all()
    return cut(rows, page, _consent, _place)


async def load_statement(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, consent_id: UUID
) -> Statement | None:
    """Who agreed and to what; None when the tenant has no such consent (any more). Raises DecryptionError."""
    raw = await _load(connection, keyring, Label(tenant, consent_id, Kind.CONSENT))
    if raw is None:
        return None
    content = json.loads(raw)
    # As the first release wrote it.
    signer = content["signer"] if "signer" in content else content["subject"]
    return Statement(signer, content["statement"])


async def load_consent_recording(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, consent_id: UUID
) -> bytes | None:
    """The recording in which the consent was spoken, as it was stored, if there is one; raises DecryptionError."""
    return await _load(connection, keyring, Label(tenant, consent_id, Kind.CONSENT_RECORDING))


async def end_consent(connection: AsyncConnection, tenant: UUID, consent_id: UUID, state: ConsentState) -> Ended:
    """Take a consent to `withdrawn` or `expired`; from this transaction's end on nothing speaks by it.

    The voices that hang on it are to be deleted. One that only has a new recording waiting under it, and speaks by
    another consent, loses that recording: the caller puts it on record, last. Raises IllegalTransition.
    """
    await _move(connection, tenant, consent_id, state)
    rejected = await _fail_replacements(connection, tenant, consent_id, state)
    query = select(voices.c.id).where(
        voices.c.tenant_id == tenant, voices.c.consent_id == consent_id, voices.c.state != VoiceState.DELETED
    )
    return Ended(list((await connection.execute(query.order_by(voices.c.id))).scalars()), rejected)


async def list_expired(connection: AsyncConnection, tenant: UUID, now: datetime, limit: int) -> list[UUID]:
    """Active consents whose time is over, the oldest first."""
    query = (
        select(consents.c.id)
        .where(consents.c.tenant_id == tenant, consents.c.state == ConsentState.ACTIVE, consents.c.expires_at <= now)
        .order_by(consents.c.expires_at, consents.c.id)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def erase_consent(connection: AsyncConnection, tenant: UUID, consent_id: UUID) -> bool:
    """Destroy a consent's key, then its statement and recording; False when it was deleted before.

    Raises IllegalTransition while a voice is left that hangs on it, or when there is no such consent. One that only has
    a new recording waiting under it loses that, as in `end_consent`.
    """
    found = await _lock(connection, tenant, consent_id)
    if found is ConsentState.DELETED:
        return False
    check_transition("consent", CONSENT_TRANSITIONS, found, ConsentState.DELETED)
    in_use = exists().where(
        voices.c.tenant_id == tenant, voices.c.consent_id == consent_id, voices.c.state != VoiceState.DELETED
    )
    if (await connection.execute(select(in_use))).scalar():
        raise IllegalTransition("consent", "in use by a voice", ConsentState.DELETED)
    await _fail_replacements(connection, tenant, consent_id, ConsentState.DELETED)
    await destroy_data_key(connection, consent_id)
    await _move(connection, tenant, consent_id, ConsentState.DELETED, sealed=None, recording=None)
    return True


async def _move(
    connection: AsyncConnection, tenant: UUID, consent_id: UUID, wanted: ConsentState, **values: object
) -> None:
    check_transition("consent", CONSENT_TRANSITIONS, await _lock(connection, tenant, consent_id), wanted)
    if wanted is ConsentState.WITHDRAWN:
        values["withdrawn_at"] = func.now()
    await connection.execute(update(consents).where(consents.c.id == consent_id).values(state=wanted, **values))


async def _lock(connection: AsyncConnection, tenant: UUID, consent_id: UUID) -> ConsentState | None:
    query = select(consents.c.state).where(consents.c.tenant_id == tenant, consents.c.id == consent_id)
    found: str | None = (await connection.execute(query.with_for_update())).scalar()
    return None if found is None else ConsentState(found)


async def _fail_replacements(
    connection: AsyncConnection, tenant: UUID, consent_id: UUID, state: ConsentState
) -> list[Rejected]:
    rejected: list[Rejected] = []
    waiting = (
        voice_versions.c.tenant_id == tenant,
        voice_versions.c.consent_id == consent_id,
        voice_versions.c.state == VersionState.PENDING,
    )
    of_others = voices.c.consent_id != consent_id
    query = select(voices.c.id).join(voice_versions, voice_versions.c.voice_id == voices.c.id).where(*waiting)
    for voice_id in (await connection.execute(query.where(of_others).order_by(voices.c.id))).scalars().all():
        await lock_voice(connection, tenant, voice_id)
        message = f"the consent of this recording was {state} before it was enrolled"
        values = {"state": VersionState.FAILED, "stage": "ended", "upload": None, "finished_at": func.now()}
        values |= {"error_code": f"consent_{state}", "error_message": message}
        statement = update(voice_versions).where(*waiting, voice_versions.c.voice_id == voice_id).values(**values)
        failed = (await connection.execute(statement.returning(voice_versions.c.version))).scalars().all()
        await change_voice(connection, voice_id)
        rejected += [Rejected(voice_id, version, f"consent_{state}") for version in sorted(failed)]
    return rejected


async def _load(connection: AsyncConnection, keyring: Keyring, label: Label) -> bytes | None:
    column = consents.c.sealed if label.kind is Kind.CONSENT else consents.c.recording
    data_key = await keyring.load_data_key(connection, label.tenant, label.owner)
    query = select(column).where(*_kept(label.tenant), consents.c.id == label.owner)
    sealed: bytes | None = (await connection.execute(query)).scalar()
    return None if data_key is None or sealed is None else unseal(data_key, sealed, label)


def _kept(tenant: UUID) -> tuple[Any, ...]:
    return consents.c.tenant_id == tenant, consents.c.state != ConsentState.DELETED


def _consent(row: Row[Any]) -> Consent:
    terms = Terms(row.statement_version, row.language, row.purpose, row.expires_at)
    return Consent(row.id, ConsentState(row.state), terms, row.granted_at, row.withdrawn_at, row.has_recording)


def _place(consent: Consent) -> Position:
    return consent.granted_at, consent.id
