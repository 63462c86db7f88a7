"""Subject access (GDPR Art. 15 and 20): everything that is held on a voice, and the archive that hands it over."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.envelope import Kind, Label
from storage.encryption.keyring import Keyring
from storage.evidence.audit import READ_LIMIT, Entry, read_audit
from storage.paging import MAX_LIMIT, Page
from storage.tables import voice_versions
from storage.tenancy.usage import Usage, read_usage
from storage.voices.consents import Consent, Statement, find_consent, load_consent_recording, load_statement
from storage.voices.records import Version, Voice, load_voice
from storage.voices.versions import list_versions, load_held

MAX_PAGES = 50
"""Of usage and of the audit log, a thousand entries each; the archive says so when there is more."""
MAX_CONSENTS = 1000
MAX_SPOKEN_BYTES = 32 * 1024 * 1024
"""Of spoken consents in one archive, which is made in memory; the last one that begins below it is whole."""
_HELD = {Kind.UPLOAD: "upload.bin", Kind.RECORDING: "recording.flac", Kind.EMBEDDING: "embedding.f32"}
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_README = """\
Everything that is held on this voice.

voice.json             its name, state, aliases and times
versions.json          each recording and what became of it
versions/N/            what is kept of it: upload.bin as it was sent (while it waits), recording.flac (trimmed),
                       embedding.f32 (the voiceprint: 256 little-endian float32)
consents/ID/           the terms (terms.json), who agreed to which words (statement.json), and the recording of it
usage.json             how much was spoken with it, by day
audit.json             what was done to it, when and by whom
manifest.json          the SHA-256 of each of these files; `complete` is false where there was too much
"""


@dataclass(frozen=True, slots=True)
class ConsentRecord:
    """A consent with the person in it."""

    consent: Consent
    statement: Statement | None
    recording: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class VoiceRecord:
    """Everything that is held on a voice, in the clear."""

    voice: Voice
    versions: tuple[Version, ...]
    held: Mapping[tuple[int, Kind], bytes] = field(repr=False)
    """Uploads, recordings and embeddings, by version."""
    consents: tuple[ConsentRecord, ...]
    usage: tuple[Usage, ...]
    audit: tuple[Entry, ...]
    complete: bool
    """False when usage or audit was too long to be read to its end, or the consents were too many."""


async def collect_voice(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice_id: UUID
) -> VoiceRecord | None:
    """Everything, in the caller's transaction; None when the tenant has no such voice. Raises DecryptionError."""
    voice = await load_voice(connection, tenant, voice_id)
    if voice is None:
        return None
    versions = await list_versions(connection, tenant, voice_id)
    held = {}
    for version in versions:
        for kind in _HELD:
            content = await load_held(connection, keyring, Label(tenant, voice_id, kind, version.number))
            if content is not None:
                held[version.number, kind] = content
    consents, all_consents = await _read_consents(connection, keyring, tenant, voice)
    usage, all_usage = await _read_usage(connection, tenant, voice_id)
    audit, all_audit = await _read_audit(connection, tenant, voice_id)
    return VoiceRecord(
        *(voice, tuple(versions), held, tuple(consents), tuple(usage), tuple(audit)),
        complete=all_consents and all_usage and all_audit,
    )


def to_archive(record: VoiceRecord) -> bytes:
    """A zip file; the same record makes the same bytes."""
    files: dict[str, bytes] = {
        "README.txt": _README.encode(),
        "voice.json": _to_json(asdict(record.voice)),
        "versions.json": _to_json([asdict(version) for version in record.versions]),
        "usage.json": _to_json([asdict(row) for row in record.usage]),
        "audit.json": _to_json([_audit_row(entry) for entry in record.audit]),
    }
    files |= {f"versions/{number}/{_HELD[kind]}": content for (number, kind), content in record.held.items()}
    for consent in record.consents:
        files |= _consent_files(consent)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["manifest.json"] = _to_json({"voice": record.voice.id, "complete": record.complete, "sha256": hashes})
    return _zip(files)


async def _read_consents(
    connection: AsyncConnection, keyring: Keyring, tenant: UUID, voice: Voice
) -> tuple[list[ConsentRecord], bool]:
    """The consents of all versions, that of the present one first, and whether their recordings are all with them."""
    records: list[ConsentRecord] = []
    ids = await _find_consents(connection, tenant, voice)
    left, complete = MAX_SPOKEN_BYTES, len(ids) <= MAX_CONSENTS
    for consent_id in ids[:MAX_CONSENTS]:
        found = await find_consent(connection, tenant, consent_id)
        if found is None:
            continue
        spoken = None
        if found.has_recording:
            complete = complete and left > 0
            spoken = await load_consent_recording(connection, keyring, tenant, consent_id) if left > 0 else None
            left -= len(spoken or b"")
        statement = await load_statement(connection, keyring, tenant, consent_id)
        records.append(ConsentRecord(found, statement, spoken))
    return records, complete


async def _find_consents(connection: AsyncConnection, tenant: UUID, voice: Voice) -> list[UUID]:
    newest = func.max(voice_versions.c.version).desc()
    query = select(voice_versions.c.consent_id).where(
        voice_versions.c.tenant_id == tenant, voice_versions.c.voice_id == voice.id
    )
    query = query.group_by(voice_versions.c.consent_id).order_by(newest).limit(MAX_CONSENTS + 1)
    return list(dict.fromkeys([voice.consent_id, *(await connection.execute(query)).scalars()]))


async def _read_usage(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> tuple[list[Usage], bool]:
    rows: list[Usage] = []
    page = Page(MAX_LIMIT)
    for _ in range(MAX_PAGES):
        found = await read_usage(connection, tenant, date.min, date.max, voice=voice_id, page=page)
        rows += found.items
        if found.after is None:
            return rows, True
        page = Page(MAX_LIMIT, found.after)
    return rows, False


async def _read_audit(connection: AsyncConnection, tenant: UUID, voice_id: UUID) -> tuple[list[Entry], bool]:
    entries: list[Entry] = []
    for _ in range(MAX_PAGES):
        after = entries[-1].sequence if entries else 0
        found = await read_audit(connection, tenant, object_id=str(voice_id), after_sequence=after, limit=READ_LIMIT)
        entries += found
        if len(found) < READ_LIMIT:
            return entries, True
    return entries, False


def _consent_files(record: ConsentRecord) -> dict[str, bytes]:
    folder = f"consents/{record.consent.id}"
    files = {f"{folder}/terms.json": _to_json(asdict(record.consent))}
    if record.statement is not None:
        files[f"{folder}/statement.json"] = _to_json(asdict(record.statement))
    if record.recording is not None:
        files[f"{folder}/recording.bin"] = record.recording
    return files


def _audit_row(entry: Entry) -> dict[str, object]:
    told = {name: getattr(entry, name) for name in ("sequence", "at", "actor", "action", "origin")}
    return told | {"detail": dict(entry.detail)}


def _to_json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2, default=_plain).encode()


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, UUID | date):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in an export")


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EARLIEST)
            text = name.endswith((".json", ".txt"))
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED if text else zipfile.ZIP_STORED)
    return buffer.getvalue()
