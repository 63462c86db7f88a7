"""storage.voices.export, over a real Postgres."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from datetime import date
from uuid import UUID, uuid4

import pytest

from storage.encryption.envelope import Kind
from storage.evidence.audit import Act, append
from storage.states import VoiceState
from storage.tenancy.usage import Usage, add_usage
from storage.voices import export
from storage.voices.aliases import set_alias
from storage.voices.export import VoiceRecord, collect_voice, to_archive
from storage.voices.versions import add_version, fail_enrolment
from storage.voices.voices import disable_voice
from tests.conftest import MakeTenant
from tests.storage.conftest import Store


async def _collect(store: Store, voice: UUID) -> VoiceRecord | None:
    async with store.open() as connection:
        return await collect_voice(connection, store.keyring, store.tenant, voice)


async def _add_full_voice(store: Store) -> UUID:
    """Disabled, replaced once, with a recording that waits, under two consents, used and named."""
    own, later = await store.add_consent(recording=b"spoken consent"), await store.add_consent()
    voice = await store.add_voice(name="Ærø", consent=own)
    other = await store.add_voice(name="other")
    async with store.open() as connection:
        await add_version(connection, store.keyring, store.tenant, voice, consent=later, upload=b"upload 2")
        await disable_voice(connection, store.tenant, voice)
        await set_alias(connection, store.tenant, "narrator", voice)
        rows = [Usage(date(2026, 11, day), which, contexts=day) for day in (1, 2) for which in (voice, other)]
        await add_usage(connection, store.tenant, rows)
        for which in (voice, other):
            await append(connection, store.tenant, Act("key:1", "voice.created", "voice", str(which), "127.0.0.1"))
    return voice


async def test_everything_that_is_held_is_collected_whatever_the_state(store: Store) -> None:
    """Names, aliases, versions, all contents, both consents with their signers, usage, audit; of this voice alone."""
    voice = await _add_full_voice(store)
    record = await _collect(store, voice)
    assert record is not None
    assert (record.voice.state, record.voice.name, record.voice.aliases) == (VoiceState.DISABLED, "Ærø", ("narrator",))
    assert [version.number for version in record.versions] == [1, 2]
    assert record.held == {
        (1, Kind.RECORDING): b"recording 1",
        (1, Kind.EMBEDDING): b"embedding 1",
        (2, Kind.UPLOAD): b"upload 2",
    }
    assert {consent.recording for consent in record.consents} == {b"spoken consent", None}
    assert [consent.statement.signer for consent in record.consents if consent.statement] == ["A. Person"] * 2
    assert [row.contexts for row in record.usage] == [2, 1]
    assert [entry.object_id for entry in record.audit] == [str(voice)]
    assert record.complete
    for secret in ("Person", "spoken", "recording 1"):
        assert secret not in repr(record)


async def test_the_archive_holds_it_with_a_hash_of_each_file(store: Store) -> None:
    """Files under plain names, the same bytes for the same record, text as UTF-8."""
    voice = await _add_full_voice(store)
    record = await _collect(store, voice)
    assert record is not None
    content = to_archive(record)
    assert content == to_archive(record)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["voice"] == str(voice)
    assert manifest["complete"] is True
    assert manifest["sha256"] == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert files["versions/1/recording.flac"] == b"recording 1"
    assert files["versions/1/embedding.f32"] == b"embedding 1"
    assert files["versions/2/upload.bin"] == b"upload 2"
    assert json.loads(files["voice.json"])["name"] == "Ærø"
    folder = f"consents/{record.voice.consent_id}"
    assert json.loads(files[f"{folder}/statement.json"])["signer"] == "A. Person"
    assert files[f"{folder}/recording.bin"] == b"spoken consent"
    assert json.loads(files["audit.json"])[0]["action"] == "voice.created"
    assert not any(name.startswith("/") or ".." in name for name in files)


@pytest.mark.parametrize("state", VoiceState)
async def test_an_export_opens_in_every_state_but_the_last(store: Store, state: VoiceState) -> None:
    """Also while it is being deleted; of a deleted voice nothing is held."""
    record = await _collect(store, await store.add_voice(state))
    assert (record is None) == (state is VoiceState.DELETED)
    assert record is None or to_archive(record)


async def test_another_tenants_voice_is_not_exported(store: Store, make_tenant: MakeTenant) -> None:
    """Nor one that is not there."""
    other = replace(store, tenant=(await make_tenant("other")).id)
    for voice in (await store.add_voice(), uuid4()):
        assert await _collect(other, voice) is None


async def test_a_list_that_is_too_long_is_said_to_be(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is bounded, and tells that there is more."""
    voice = await _add_full_voice(store)
    monkeypatch.setattr("storage.voices.export.MAX_PAGES", 1)
    monkeypatch.setattr("storage.voices.export.MAX_LIMIT", 1)
    record = await _collect(store, voice)
    assert record is not None
    assert (len(record.usage), record.complete) == (1, False)
    with zipfile.ZipFile(io.BytesIO(to_archive(record))) as archive:
        assert json.loads(archive.read("manifest.json"))["complete"] is False


async def test_an_archive_has_a_bound_whatever_its_voice_was_replaced_by(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consent that counts comes first and whole; where there are too many spoken ones, the archive says so."""
    monkeypatch.setattr(export, "MAX_SPOKEN_BYTES", 100)
    consents = [await store.add_consent(recording=bytes([number]) * 60) for number in range(4)]
    voice = await store.add_voice(VoiceState.FAILED, consent=consents[0])
    for number, consent in enumerate(consents[1:], start=2):
        async with store.open() as connection:
            await add_version(connection, store.keyring, store.tenant, voice, consent=consent, upload=b"x")
            await fail_enrolment(connection, store.tenant, voice, number, code="silent", message="silent")
    record = await _collect(store, voice)
    assert record is not None
    assert [found.consent.id for found in record.consents] == consents[::-1]
    assert [found.recording for found in record.consents] == [bytes([3]) * 60, bytes([2]) * 60, None, None]
    assert not record.complete
