"""relay.speaking.speech_notes, relay.speaking.casting: what was spoken is on record once, and its text nowhere."""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from relay import metrics
from relay.errors import ServiceUnavailable, UnknownVoice
from relay.native.frames import HEADER
from relay.speaking import speech_notes
from relay.speaking.casting import Casting
from relay.speaking.context_state import Address
from relay.speaking.events import BYTES_PER_SAMPLE, SAMPLE_RATE
from relay.speaking.speech_notes import SpeechNotes
from relay.speaking.tally import Tally
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import audit_key, hash_text
from storage.redis import connect
from storage.settings import Settings
from storage.streams.speech_log import Mark, Spoken, read_spoken
from tests.conftest import DEADLINE_S, MakeTenant, MakeVoice, RunningStack, StartStack, Tenant
from tests.relay.conftest import EMBEDDING, TEXT, TEXT_KEY, Harness, hear_until, noted, open_context, open_socket

LONG_TEXT = "It goes on, and on, and on, for as long as anybody listens. " * 40
ADDRESS = Address("key", "c", 7, "relay-1", uuid4(), uuid4(), 3)


def milliseconds(frames: list[bytes]) -> int:
    samples = sum(len(frame) - HEADER.size for frame in frames) // BYTES_PER_SAMPLE
    return 1000 * samples // SAMPLE_RATE


async def speak(stack: RunningStack, key: str, voice: str, text: str) -> list[bytes]:
    """The frames of a text that was spoken to its end, in pieces as a model writes it."""
    frames: list[bytes] = []
    async with open_socket(stack, key) as connection:
        await open_context(connection, voice)
        for start in range(0, len(text), 7):
            await connection.send(json.dumps({"type": "text", "context": "c", "text": text[start : start + 7]}))
        await connection.send(json.dumps({"type": "end", "context": "c"}))
        async with asyncio.timeout(DEADLINE_S):
            while not isinstance(message := await connection.recv(), str) or json.loads(message)["type"] != "done":
                if isinstance(message, bytes):
                    frames.append(message)
    return frames


async def test_every_context_that_was_heard_is_noted_once_however_it_ends(
    start_stack: StartStack,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
    database: Database,
    keyring: Keyring,
    redis: Redis,
) -> None:
    """Done, cancelled and gone: who, with what, how much, and the keyed hash of the text; the text is not in Redis."""
    stack = start_stack(only=("worker", "relay"))
    tenant = await make_tenant("acme")
    voice = str(await make_voice(tenant.id, embedding=EMBEDDING))
    frames = await speak(stack, tenant.key, voice, TEXT)
    (done,) = await noted(redis, tenant.id, 1)
    async with database.transaction(tenant=tenant.id) as connection:
        key = await audit_key(connection, keyring, tenant.id)
    assert (str(done.voice), done.version, done.key_id, done.origin) == (voice, 1, tenant.key_id, "127.0.0.1")
    assert (done.sentences, done.audio_ms) == (3, milliseconds(frames))
    assert len(TEXT) - 5 <= done.characters <= len(TEXT)
    assert done.text_hmac == hash_text(key, TEXT)
    await _disturb(stack, tenant, voice)
    notes = await noted(redis, tenant.id, 3)
    assert len({note.context for note in notes}) == 3
    assert all(note.audio_ms > 0 and note.sentences >= 1 for note in notes)
    assert {note.text_hmac for note in notes[1:]} == {hash_text(key, LONG_TEXT)}
    for entry in [await redis.dump(name) async for name in redis.scan_iter("timbrelay:*speech*")]:
        assert entry is not None and TEXT[:12].encode() not in entry
    assert TEXT[:12].encode() not in stack.log.read_bytes()


async def _disturb(stack: RunningStack, tenant: Tenant, voice: str) -> None:
    """One context that is cancelled, one whose client goes, and one that nobody heard."""
    async with open_socket(stack, tenant.key) as connection:
        await open_context(connection, voice, "silent")
        await connection.send(json.dumps({"type": "cancel", "context": "silent"}))
        await hear_until(connection, "cancelled")
        await open_context(connection, voice)
        await connection.send(json.dumps({"type": "text", "context": "c", "text": LONG_TEXT}))
        await hear_until(connection, bytes)
        await connection.send(json.dumps({"type": "cancel", "context": "c"}))
        await hear_until(connection, "cancelled")
        await open_context(connection, voice)
        await connection.send(json.dumps({"type": "text", "context": "c", "text": LONG_TEXT}))
        await hear_until(connection, bytes)


async def test_what_is_spoken_when_the_relay_stops_is_noted_before_it_ends(
    start_stack: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice, redis: Redis
) -> None:
    """An orderly end loses nothing."""
    stack = start_stack(only=("worker", "relay"))
    tenant = await make_tenant("acme")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with open_socket(stack, tenant.key) as connection:
        await open_context(connection, voice)
        await connection.send(json.dumps({"type": "text", "context": "c", "text": LONG_TEXT}))
        await hear_until(connection, bytes)
        stack.processes["relay"].ask_to_stop()
        assert await asyncio.to_thread(stack.processes["relay"].wait, DEADLINE_S)
    assert len((await read_spoken(redis, tenant.id, Mark(), 10)).entries) == 1


def spoken(tenant: UUID, number: int = 0) -> Spoken:
    counts: dict[str, Any] = {"sentences": 1, "characters": 10, "audio_ms": 500, "text_hmac": "00" * 32, "at_ms": 1}
    return Spoken(tenant, uuid4(), 1, uuid4(), "127.0.0.1", f"{number:032x}", **counts)


async def test_notes_wait_for_a_redis_that_is_away(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """They are written when it is back, each once, in their order."""
    monkeypatch.setattr(speech_notes, "RETRY_S", 0.01)
    away, tenant = connect("unix:///nowhere/valkey.sock"), uuid4()
    notes = SpeechNotes(away)
    task = asyncio.create_task(notes.run())
    sent = [spoken(tenant, number) for number in range(5)]
    for one in sent:
        notes.put(one)
    async with asyncio.timeout(DEADLINE_S):
        while notes._pending is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    monkeypatch.setattr(notes, "_redis", redis)
    assert await noted(redis, tenant, 5) == sent
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await away.aclose()


async def test_what_there_is_no_room_for_is_counted(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue has a bound, and nobody waits for a place in it."""
    monkeypatch.setattr(speech_notes, "CAPACITY", 3)
    notes, tenant = SpeechNotes(redis), uuid4()
    before = metrics.NOTES.labels("dropped")._value.get()
    for number in range(5):
        notes.put(spoken(tenant, number))
    assert metrics.NOTES.labels("dropped")._value.get() - before == 2
    task = asyncio.create_task(notes.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len((await read_spoken(redis, tenant, Mark(), 10)).entries) == 3


async def test_a_voice_is_cast_by_its_id_or_its_alias_alone_of_its_tenant(
    database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Pending voices, names that nobody gave, and what no database takes are unknown."""
    from storage.voices.aliases import set_alias

    tenant, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    voice, pending = await make_voice(tenant, embedding=EMBEDDING), await make_voice(tenant)
    async with database.transaction(tenant=tenant) as connection:
        await set_alias(connection, tenant, "narrator", voice)
    casting = Casting(database, keyring)
    for name in (str(voice), "narrator"):
        role = await casting.cast(tenant, name)
        assert (role.speaker.voice, role.speaker.version) == (voice, 1)
        with pytest.raises(UnknownVoice):
            await casting.cast(other, name)
    for name in (str(pending), str(uuid4()), "nobody", "a\0b", "' OR 1=1 --"):
        with pytest.raises(UnknownVoice):
            await casting.cast(tenant, name)


async def test_the_audit_key_is_looked_up_again_after_some_minutes(
    database: Database, keyring: Keyring, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Until then it is kept, then gone. Two contexts of a text have one hash, those of two tenants do not."""
    now = [0.0]
    casting = Casting(database, keyring, lambda: now[0])
    hashes = {}
    for name in ("acme", "other"):
        tenant = (await make_tenant(name)).id
        voice = str(await make_voice(tenant, embedding=EMBEDDING))
        first, second = await casting.cast(tenant, voice), await casting.cast(tenant, voice)
        for role in (first, second):
            role.text_hash.update(b"Hello.")
        assert first.text_hash.hexdigest() == second.text_hash.hexdigest()
        hashes[tenant] = first.text_hash.hexdigest()
    assert len(set(hashes.values())) == 2
    assert set(casting._kept) == set(hashes)
    now[0] += 301
    await casting.cast(tenant, voice)
    assert set(casting._kept) == {tenant}


async def test_without_postgres_a_context_does_not_begin(settings: Settings, keyring: Keyring) -> None:
    """The client is told to come back, and not why."""
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none", settings.service_role)
    with pytest.raises(ServiceUnavailable):
        await Casting(nowhere, keyring).cast(uuid4(), "narrator")
    await nowhere.close()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers(0, 50), max_size=20))
def test_the_hash_does_not_depend_on_how_the_text_came(text: str, cuts: list[int]) -> None:
    """In whatever pieces, it is HMAC-SHA256 of the whole."""
    tally, rest = Tally(hmac.new(TEXT_KEY, digestmod="sha256")), text
    for cut in cuts:
        tally.read(rest[:cut])
        rest = rest[cut:]
    tally.read(rest)
    tally.play(0, "x", 1)
    (note,) = tally.note(ADDRESS)
    assert note.text_hmac == hmac.new(TEXT_KEY, text.encode(), "sha256").hexdigest()


@given(st.lists(st.tuples(st.text(min_size=1, max_size=60), st.lists(st.integers(1, 1920), min_size=1, max_size=5))))
def test_a_tally_counts_each_sentence_once_and_every_sample(sentences: list[tuple[str, list[int]]]) -> None:
    """However many chunks a sentence has; nothing is noted of a context that nobody has heard."""
    tally = Tally(hmac.new(TEXT_KEY, digestmod="sha256"))
    for number, (text, chunks) in enumerate(sentences):
        for samples in chunks:
            tally.play(number, text, samples)
    notes = tally.note(ADDRESS)
    if not sentences:
        assert notes == []
        return
    (note,) = notes
    assert (note.context, note.key, note.voice, note.version) == (7, "key", ADDRESS.voice, 3)
    assert note.sentences == len(sentences)
    assert note.characters == sum(len(text) for text, _ in sentences)
    assert note.samples == sum(sum(chunks) for _, chunks in sentences)


def test_a_context_that_ends_gives_one_note(harness: Harness) -> None:
    """Done, failed and cancelled alike, after what it says; and none for what comes later."""
    harness.speak(TEXT)
    harness.send(type="end", context="c")
    assert [(note.sentences, note.samples) for note in harness.notes] == [(3, 3 * 3 * 1920)]
    harness.open("d")
    harness.speak(TEXT, "d")
    harness.send(type="cancel", context="d")
    assert len(harness.notes) == 2
    harness.take(harness.session.close())
    assert len(harness.notes) == 2
    first, second = (replace(note, key="", context=0) for note in harness.notes)
    assert first == second
