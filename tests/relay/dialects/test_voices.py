"""Voices as dialects offer them: what our own API does, without its spelling."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from starlette.requests import Request

from relay.api.services import Services
from relay.api.uploads import MAX_TENANT_UPLOADS, UploadRoom
from relay.api.visits import Visit
from relay.clock import SystemClock
from relay.dialects.voices import (
    CONSENT_HEADER,
    delete_offered,
    find_offered,
    list_offered,
    make_offered,
    read_consent,
    rename_offered,
    take_form,
)
from relay.entrance.admission import Admission, Bounds
from relay.entrance.rate_limits import RateLimiter
from relay.errors import InvalidRequest, RecordingTooLarge, Refused, RequestRefused, UnknownObject, UnknownVoice
from storage.cold_jobs import make_celery
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import read_audit
from storage.evidence.erasure import Erasure
from storage.redis import connect
from storage.settings import Settings
from storage.states import VoiceState
from storage.tenancy.api_keys import authenticate
from storage.tenancy.limits import Limits
from storage.voices.aliases import set_alias
from storage.voices.consents import grant_consent
from storage.voices.voices import begin_deletion, disable_voice
from tests.conftest import STATEMENT, TERMS, MakeTenant, MakeVoice, StartStack, Tenant

EMBEDDING = bytes(1024)
SAMPLE = (Path(__file__).resolve().parents[3] / "samples" / "reference-low.wav").read_bytes()


@pytest.fixture
async def services(settings: Settings, database: Database, keyring: Keyring) -> AsyncIterator[Services]:
    """What the doors of a relay work with."""
    redis = connect(settings.redis_url)
    yield Services(
        database,
        redis,
        make_celery(settings),
        keyring,
        RateLimiter(redis, 100),
        Admission("relay", SystemClock(), Bounds(1, 1, 1)),
        Erasure(database, redis, keyring),
        100_000,
        UploadRoom(),
    )
    await redis.aclose()


@pytest.fixture
async def acme(make_tenant: MakeTenant) -> Tenant:
    """A tenant with a key of all scopes."""
    return await make_tenant("acme")


@pytest.fixture
async def visit(database: Database, acme: Tenant) -> Visit:
    """A visit of theirs."""
    caller = await authenticate(database, acme.key)
    assert caller is not None
    return Visit(caller, "192.0.2.1")


async def _grant(services: Services, tenant: UUID) -> str:
    granted = await services.within(
        tenant, lambda connection: grant_consent(connection, services.keyring, tenant, TERMS, STATEMENT)
    )
    return str(granted.id)


async def _actions(services: Services, tenant: UUID) -> list[str]:
    entries = await services.within(tenant, lambda connection: read_audit(connection, tenant))
    return [entry.action for entry in entries]


def _post(content: bytes, kind: str, **headers: str) -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": content, "more_body": False}

    given = {"content-type": kind, **headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive)


def _form(file: str, content: bytes, **fields: str) -> Request:
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n' for name in fields]
    head = f'--x\r\nContent-Disposition: form-data; name="{file}"; filename="a.wav"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + b"\r\n--x--\r\n"
    return _post(body, "multipart/form-data; boundary=x")


async def test_what_is_offered_is_ready_and_the_tenants_own(
    services: Services, acme: Tenant, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """Newest first, page after page; pending and disabled voices are in no list, nor another tenant's."""
    other = await make_tenant("other")
    ready = [await make_voice(acme.id, embedding=EMBEDDING, name=name) for name in ("Anna", "Ben", "Änne 100%")]
    await make_voice(acme.id, name="pending")
    mute = await make_voice(acme.id, embedding=EMBEDDING, name="mute")
    await services.within(acme.id, lambda connection: disable_voice(connection, acme.id, mute))
    await make_voice(other.id, embedding=EMBEDDING, name="foreign")
    first = await list_offered(services, acme.id, limit=2)
    assert [voice.id for voice in first.items] == ready[:0:-1]
    rest = await list_offered(services, acme.id, limit=2, after=first.after)
    assert [(voice.id, voice.name, voice.state) for voice in rest.items] == [(ready[0], "Anna", VoiceState.READY)]
    assert rest.after is None


@pytest.mark.parametrize(
    ("search", "names"),
    [("ANN", ["Anna"]), ("n", ["Änne 100%", "Ben", "Anna"]), ("0%", ["Änne 100%"]), ("A\u0308nn", ["Änne 100%"])]
    + [(nothing, []) for nothing in ("_", "%%", "a\0b", "\ud800", "x" * 5000, "'; --")],
)
async def test_a_search_is_a_part_of_a_name_and_no_pattern(
    search: str, names: list[str], services: Services, acme: Tenant, make_voice: MakeVoice
) -> None:
    """In whichever case and spelling; what can be in no name is in none."""
    for name in ("Anna", "Ben", "Änne 100%"):
        await make_voice(acme.id, embedding=EMBEDDING, name=name)
    assert [voice.name for voice in (await list_offered(services, acme.id, limit=9, search=search)).items] == names


async def test_a_voice_is_found_by_id_or_alias_and_nobody_elses(
    services: Services, database: Database, acme: Tenant, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """By its id in every state that can be looked at; of the other tenant neither the id nor the alias."""
    other = await make_tenant("other")
    mine, foreign = [await make_voice(tenant.id, embedding=EMBEDDING) for tenant in (acme, other)]
    pending = await make_voice(acme.id)
    for tenant, alias, voice in ((acme.id, "alloy", mine), (other.id, "theirs", foreign)):
        async with database.transaction(tenant=tenant) as connection:
            assert await set_alias(connection, tenant, alias, voice)
    assert (await find_offered(services, acme.id, "alloy")) == (await find_offered(services, acme.id, str(mine)))
    assert (await find_offered(services, acme.id, "alloy")).aliases == ("alloy",)
    assert (await find_offered(services, acme.id, str(pending))).state is VoiceState.PENDING
    going = await make_voice(acme.id, embedding=EMBEDDING)
    async with database.transaction(tenant=acme.id) as connection:
        assert await begin_deletion(connection, acme.id, going)
    for name in (str(foreign), "theirs", str(going), str(uuid4()), "", "a\0b", "\ud800", "../alloy", "x" * 10_000):
        with pytest.raises(UnknownVoice):
            await find_offered(services, acme.id, name)


async def test_renaming_and_deleting_are_on_record(
    services: Services, visit: Visit, acme: Tenant, make_voice: MakeVoice
) -> None:
    """A deleted voice is found by nothing any more; deleting it twice does no harm, and an unknown one is unknown."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    assert (await rename_offered(services, visit, voice, "  Zoë ")).name == "Zoë"
    for name in ("", " ", "x" * 201, "a\nb", "\ud800"):
        with pytest.raises(InvalidRequest, match="name"):
            await rename_offered(services, visit, voice, name)
    await delete_offered(services, visit, voice)
    await delete_offered(services, visit, voice)
    for attempt in (rename_offered(services, visit, voice, "late"), find_offered(services, acme.id, str(voice))):
        with pytest.raises(UnknownVoice):
            await attempt
    with pytest.raises(UnknownVoice):
        await delete_offered(services, visit, uuid4())
    actions = await _actions(services, acme.id)
    assert actions[:2] == ["voice.renamed", "voice.deletion_requested"]


async def test_a_recording_becomes_a_voice_that_is_ready(
    services: Services, visit: Visit, acme: Tenant, start_stack: StartStack
) -> None:
    """It waits for the enrolment; a recording that does not do is refused with its reason, and nothing is left."""
    start_stack(only=("celery",))
    consent = await _grant(services, acme.id)
    made = await make_offered(services, visit, name="Low", consent=consent, recording=SAMPLE)
    assert (made.name, made.state) == ("Low", VoiceState.READY)
    with pytest.raises(RequestRefused) as refusal:
        await make_offered(services, visit, name="Noise", consent=consent, recording=b"no sound at all")
    assert (refusal.value.status, refusal.value.field) == (422, "recording")
    assert refusal.value.code == "recording_not_audio", refusal.value.message
    assert [voice.id for voice in (await list_offered(services, acme.id, limit=9)).items] == [made.id]
    actions = await _actions(services, acme.id)
    assert actions.count("voice.created") == 2
    assert "voice.deletion_requested" in actions


async def test_a_slow_enrolment_leaves_a_pending_voice(services: Services, visit: Visit, acme: Tenant) -> None:
    """Nothing is lost when the wait is over: the voice is there, and will be ready by itself."""
    consent = await _grant(services, acme.id)
    made = await make_offered(services, visit, name="Low", consent=consent, recording=SAMPLE, wait_s=0)
    assert (await find_offered(services, acme.id, str(made.id))).state is VoiceState.PENDING


async def test_no_voice_without_a_consent_and_a_place(
    services: Services, visit: Visit, acme: Tenant, make_tenant: MakeTenant
) -> None:
    """An unknown consent, another tenant's, a name that is none, a used up quota: each is said, and nothing is made."""
    other = await make_tenant("other")
    consent, foreign = await _grant(services, acme.id), await _grant(services, other.id)
    for name, by, error in (
        ("a", foreign, UnknownObject),
        ("a", str(uuid4()), UnknownObject),
        ("a", "mine\0", UnknownObject),
        ("", consent, InvalidRequest),
    ):
        with pytest.raises(error):
            await make_offered(services, visit, name=name, consent=by, recording=SAMPLE, wait_s=0)
    full = replace(visit, caller=replace(visit.caller, limits=Limits(voices=0)))
    with pytest.raises(Refused):
        await make_offered(services, full, name="a", consent=consent, recording=SAMPLE, wait_s=0)
    assert await _actions(services, acme.id) == []


def test_a_request_without_a_consent_is_told_how_to_get_one() -> None:
    """The dialect's own way, or our header; the sentence names both."""
    sent, without = _post(b"", "", **{CONSENT_HEADER: " abc "}), _post(b"", "")
    assert read_consent(sent, None, "the field `consent`") == "abc"
    assert read_consent(sent, "given", "the field `consent`") == "given"
    with pytest.raises(InvalidRequest, match=r"POST /v1/consents.*the field `consent`.*X-Timbrelay-Consent"):
        read_consent(without, " ", "the field `consent`")


async def test_a_form_has_its_room_and_its_bounds(services: Services, visit: Visit) -> None:
    """The file's field has the dialect's name; half of the relay's places are one tenant's; too much is too much."""
    async with take_form(services, visit, _form("clip", b"sound", name="a", unknown="b"), "clip") as form:
        assert (dict(form.fields), form.recording) == ({"name": "a", "unknown": "b"}, b"sound")
    with pytest.raises(InvalidRequest, match="`clip`"):
        async with take_form(services, visit, _form("recording", b"sound"), "clip"):
            pass
    with pytest.raises(RecordingTooLarge) as refusal:
        async with take_form(services, visit, _form("clip", b"x" * 100_001), "clip"):
            pass
    assert refusal.value.field == "clip"
    with contextlib.ExitStack() as places:
        for _ in range(MAX_TENANT_UPLOADS):
            places.enter_context(services.uploads.take(visit.tenant))
        with pytest.raises(Refused):
            async with take_form(services, visit, _form("clip", b"sound"), "clip"):
                pass
    hasty = replace(visit, caller=replace(visit.caller, limits=Limits(uploads_per_minute=0)))
    with pytest.raises(Refused, match="uploads a minute"):
        async with take_form(services, hasty, _form("clip", b"sound"), "clip"):
            pass
