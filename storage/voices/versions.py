"""Versions of a voice: a recording comes in, its enrolment makes it speak or says why not, the one before goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, and_, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label, seal, unseal
from storage.encryption.keyring import Keyring, destroy_data_key
from storage.encryption.secrets import SecretBytes
from storage.errors import IllegalTransition
from storage.states import VERSION_TRANSITIONS, VersionState, VoiceState, check_transition
from storage.tables import consents, voice_versions, voices
from storage.tenancy.tenants import hold_tenant
from storage.voices.records import Version as Version
from storage.voices.records import (
    Voice,
    change_voice,
    check_alive,
    in_force,
    load_voice,
    lock_consent,
    lock_voice,
    read_version,
)

ENDED = "ended"
"""The stage of a version whose enrolment is over, well or not."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What an enrolment has made of an upload."""

    recording: bytes
    """FLAC."""
    embedding: bytes
    """256 little-endian float32."""
    duration_s: float
    quality: int | None
    quality_parts: dict[str, Any] | None

    def __repr__(self) -> str:
        return f"Enrolled({self.duration_s} s, quality {self.quality})"


async def add_version(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice_id: UUID, *, consent: UUID, upload: bytes
) -> Voice | None:
    """Keep another recording of a voice, which speaks as before until that one is enrolled; a failed voice is pending.

    None when the tenant has no such consent in force. Raises IllegalTransition while another recording waits, and for
    a voice or a tenant that is going or gone.
    """
    await hold_tenant(connection, tenant)
    # Consents before voices, as everywhere: two that lock in opposite order would wait for each other.
    if not await lock_consent(connection, tenant, consent):
        return None
    row = check_alive(await lock_voice(connection, tenant, voice_id), VoiceState.PENDING)
    if await _is_waiting(connection, voice_id):
        raise IllegalTransition("voice", "a recording that waits for its enrolment", "another recording")
    number = row.latest_version + 1
    await keep_upload(connection, keyring, tenant, voice_id, number, consent=consent, upload=upload)
    values: dict[str, object] = {"latest_version": number}
    if row.version == 0:
        values |= {"state": VoiceState.PENDING, "consent_id": consent}
    await change_voice(connection, voice_id, **values)
    return await load_voice(connection, tenant, voice_id)


async def keep_upload(
    connection: AsyncConnection,
    keyring: Keyring,
    tenant: UUID,
    voice_id: UUID,
    number: int,
    *,
    consent: UUID,
    upload: bytes,
) -> None:
    """Seal a recording as a pending version of a voice that this transaction has locked or made."""
    data_key = await keyring.load_or_make_data_key(connection, tenant, voice_id)
    row = {"voice_id": voice_id, "version": number, "tenant_id": tenant, "consent_id": consent}
    sealed = seal(data_key, upload, Label(tenant, voice_id, Kind.UPLOAD, number))
    await connection.execute(insert(voice_versions).values(**row, state=VersionState.PENDING, upload=sealed))


async def claim_enrolment(
    connection: AsyncConnection, tenant: UUID, voice_id: UUID, version: int, lease_s: float
) -> bool:
    """Have a pending version for oneself for so many seconds; False when another has it, or it is not pending."""
    free = or_(voice_versions.c.claimed_until.is_(None), voice_versions.c.claimed_until <= func.now())
    statement = (
        update(voice_versions)
        .where(*_waiting(tenant, voice_id, version), free, _voice_stays(tenant, voice_id))
        .values(claimed_until=func.now() + timedelta(seconds=lease_s))
    )
    return (await connection.execute(statement)).rowcount == 1


async def report_stage(connection: AsyncConnection, tenant: UUID, voice_id: UUID, version: int, stage: str) -> None:
    """Note how far a pending version's enrolment is."""
    await connection.execute(update(voice_versions).where(*_waiting(tenant, voice_id, version)).values(stage=stage))


async def load_upload(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice_id: UUID, version: int
) -> bytes | None:
    """The recording as it was uploaded, while the version waits for its enrolment; raises DecryptionError."""
    query = select(voice_versions.c.upload).where(*_waiting(tenant, voice_id, version), _voice_stays(tenant, voice_id))
    return await _open(connection, keyring, Label(tenant, voice_id, Kind.UPLOAD, version), query)


async def load_embedding(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice_id: UUID, version: int
) -> bytes | None:
    """The embedding's 1024 bytes (256 little-endian float32); raises DecryptionError.

    None unless the voice is ready, this version is not retired, and its consent is in force.
    """
    consented = and_(consents.c.tenant_id == tenant, consents.c.id == voice_versions.c.consent_id)
    query = (
        select(voice_versions.c.embedding)
        .join(voices, voices.c.id == voice_versions.c.voice_id)
        .join(consents, consented)
        .where(*_named(tenant, voice_id, version), voices.c.state == VoiceState.READY, in_force())
    )
    return await _open(connection, keyring, Label(tenant, voice_id, Kind.EMBEDDING, version), query)


async def load_held(connection: AsyncConnection, keyring: Keyring, label: Label) -> bytes | None:
    """An upload, a recording or an embedding as long as it is there, whatever the state of its voice: for an export.

    Raises DecryptionError.
    """
    query = select(voice_versions.c[label.kind.value]).where(*_named(label.tenant, label.owner, label.version))
    return await _open(connection, keyring, label, query)


async def complete_enrolment(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice_id: UUID, version: int, content: Enrolled
) -> None:
    """Replace the upload by what became of it; the voice speaks with this version, and earlier ones are wiped, with
    their key.

    Raises IllegalTransition when the version waits no more, or the voice is going or gone.
    """
    row = check_alive(await lock_voice(connection, tenant, voice_id), VoiceState.READY)
    found = await _lock_version(connection, tenant, voice_id, version, VersionState.READY)
    data_key = await _find_key(connection, keyring, tenant, voice_id, anew=row.version > 0)
    sealed = {
        kind.value: seal(data_key, plain, Label(tenant, voice_id, kind, version))
        for kind, plain in ((Kind.RECORDING, content.recording), (Kind.EMBEDDING, content.embedding))
    }
    known = {"duration_s": content.duration_s, "quality": content.quality, "quality_parts": content.quality_parts}
    await _end(connection, voice_id, version, state=VersionState.READY, **known, **sealed)
    await _retire(connection, voice_id, version)
    state = VoiceState.READY if row.state == VoiceState.PENDING else row.state
    await change_voice(connection, voice_id, state=state, version=version, consent_id=found.consent_id)


async def fail_enrolment(
    connection: AsyncConnection, tenant: UUID, voice_id: UUID, version: int, *, code: str, message: str
) -> None:
    """Note why a recording cannot become a voice, and destroy it; a voice that spoke before goes on with what it had.

    Raises IllegalTransition when the version waits no more, or the voice is going or gone.
    """
    row = check_alive(await lock_voice(connection, tenant, voice_id), VoiceState.FAILED)
    await _lock_version(connection, tenant, voice_id, version, VersionState.FAILED)
    await _end(connection, voice_id, version, state=VersionState.FAILED, error_code=code, error_message=message)
    if row.version == 0:
        await destroy_data_key(connection, voice_id)
    await change_voice(connection, voice_id, state=VoiceState.FAILED if row.version == 0 else row.state)


async def list_enrolments_under_way(
    connection: AsyncConnection, tenant: UUID, before: datetime, limit: int
) -> list[tuple[UUID, int]]:
    """Versions that have waited since before that time and that nobody has claimed, the oldest first."""
    unclaimed = or_(voice_versions.c.claimed_until.is_(None), voice_versions.c.claimed_until <= func.now())
    query = (
        select(voice_versions.c.voice_id, voice_versions.c.version)
        .join(voices, voices.c.id == voice_versions.c.voice_id)
        .where(
            voice_versions.c.tenant_id == tenant,
            voice_versions.c.state == VersionState.PENDING,
            voice_versions.c.created_at < before,
            voices.c.state != VoiceState.DELETING,
            unclaimed,
        )
        .order_by(voice_versions.c.created_at, voice_versions.c.voice_id)
        .limit(limit)
    )
    return [(row.voice_id, row.version) for row in await connection.execute(query)]


async def list_versions(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> list[Version]:
    """Every version of a voice that is not deleted, the first one first."""
    columns = [column for column in voice_versions.c if column.name not in ("upload", "recording", "embedding")]
    query = select(*columns).where(voice_versions.c.tenant_id == tenant, voice_versions.c.voice_id == voice_id)
    return [read_version(row) for row in await connection.execute(query.order_by(voice_versions.c.version))]


async def _is_waiting(connection: AsyncConnection, voice_id: UUID) -> bool:
    query = select(voice_versions.c.version).where(
        voice_versions.c.voice_id == voice_id, voice_versions.c.state == VersionState.PENDING
    )
    return (await connection.execute(query.limit(1))).scalar() is not None


async def _lock_version(
    connection: AsyncConnection, tenant: UUID, voice_id: UUID, version: int, wanted: VersionState
) -> Row[Any]:
    """The version's row, if it may take this step; the voice is locked, so nobody else takes one."""
    columns: tuple[Any, ...] = voice_versions.c.state, voice_versions.c.consent_id
    query = select(*columns).where(*_named(tenant, voice_id, version))
    row = (await connection.execute(query)).one_or_none()
    check_transition("version", VERSION_TRANSITIONS, None if row is None else VersionState(row.state), wanted)
    if row is None:
        raise IllegalTransition("version", "nothing", wanted)
    return row


async def _find_key(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice_id: UUID, *, anew: bool
) -> SecretBytes:
    """The voice's key, for what it is going to speak with from now on; raises IllegalTransition when it has none.

    `anew` destroys it for another one: nothing else is left that it opens, but in an old backup what is replaced.
    """
    data_key = await keyring.load_data_key(connection, tenant, voice_id)
    if data_key is None or (anew and not await destroy_data_key(connection, voice_id)):
        raise IllegalTransition("voice", "without its key", VoiceState.READY)
    return await keyring.make_data_key(connection, tenant, voice_id) if anew else data_key


async def _end(connection: AsyncConnection, voice_id: UUID, version: int, **values: object) -> None:
    statement = update(voice_versions).where(voice_versions.c.voice_id == voice_id, voice_versions.c.version == version)
    ended = {"upload": None, "stage": ENDED, "finished_at": func.now(), "claimed_until": None}
    await connection.execute(statement.values(**ended, **values))


async def _retire(connection: AsyncConnection, voice_id: UUID, version: int) -> None:
    statement = update(voice_versions).where(
        voice_versions.c.voice_id == voice_id,
        voice_versions.c.version < version,
        voice_versions.c.state == VersionState.READY,
    )
    await connection.execute(statement.values(state=VersionState.RETIRED, recording=None, embedding=None))


async def _open(connection: AsyncConnection, keyring: Keyring, label: Label, query: Select[Any]) -> bytes | None:
    # The key first: what is replaced in between is not found, and what is found has this key.
    data_key = await keyring.load_data_key(connection, label.tenant, label.owner)
    sealed: bytes | None = (await connection.execute(query)).scalar()
    return None if data_key is None or sealed is None else unseal(data_key, sealed, label)


def _named(tenant: UUID, voice_id: UUID, version: int) -> tuple[Any, ...]:
    of_tenant = voice_versions.c.tenant_id == tenant
    return of_tenant, voice_versions.c.voice_id == voice_id, voice_versions.c.version == version


def _waiting(tenant: UUID, voice_id: UUID, version: int) -> tuple[Any, ...]:
    return *_named(tenant, voice_id, version), voice_versions.c.state == VersionState.PENDING


def _voice_stays(tenant: UUID, voice_id: UUID) -> Any:
    going = voices.c.state.in_([VoiceState.DELETING, VoiceState.DELETED])
    return select(voices.c.id).where(voices.c.tenant_id == tenant, voices.c.id == voice_id, ~going).exists()
