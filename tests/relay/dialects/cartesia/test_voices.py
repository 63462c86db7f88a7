"""`/voices` and `/access-token` of a running relay: the tenant's voices and keys in Cartesia's shape."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
from pydantic import SecretStr
from sqlalchemy import insert, select, update

from relay.dialects.cartesia.access_tokens import MAX_TOKENS, NAME
from storage.database import Database
from storage.tables import api_keys, audit_log
from storage.tenancy.api_keys import Scope, create_key
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack, Tenant
from tests.relay.dialects.cartesia.conftest import Http, Speaking, dial, find_error, hear, say
from tests.relay.dialects.cartesia.wire import kinds
from tests.system.conftest import SAMPLES, embed

ONE_STACK = True
CLIP = ("low.wav", SAMPLES["low"].read_bytes(), "audio/wav")
ORIGIN = "127.0.0.1"


async def test_voices_are_listed_in_pages(http: Http, acme: Speaking, make_voice: MakeVoice) -> None:
    """Newest first, going on after an id, found by a part of their names; nothing of another tenant."""
    made = [acme.voice]
    for name in ("Ada", "Bert"):
        made.insert(0, str(await make_voice(acme.tenant.id, embedding=embed("high"), name=name)))
    first = (await http.get("/voices", params={"limit": 2})).json()
    assert [voice["id"] for voice in first["data"]] == made[:2]
    assert (first["has_more"], first["next_page"]) == (True, made[1])
    rest = (await http.get("/voices", params={"limit": 2, "starting_after": made[1]})).json()
    assert ([voice["id"] for voice in rest["data"]], rest["has_more"]) == (made[2:], False)
    past = (await http.get("/voices", params={"starting_after": made[2]})).json()
    assert past == {"data": [], "has_more": False, "next_page": None}
    found = (await http.get("/voices", params={"q": "Ad", "is_owner": "true", "expand[]": "preview_file_url"})).json()
    assert [voice["name"] for voice in found["data"]] == ["Ada"]
    assert (await http.get("/voices", params={"gender": "feminine"})).json()["data"] == []


async def test_a_voice_has_what_cartesias_clients_look_for(http: Http, acme: Speaking) -> None:
    """All fields of a voice, of which most are the same for all."""
    voice = (await http.get(f"/voices/{acme.voice}")).json()
    assert datetime.fromisoformat(voice.pop("created_at")).tzinfo is not None
    assert voice == {
        "id": acme.voice,
        "user_id": str(acme.tenant.id),
        "name": "low",
        "description": "",
        "tagline": "",
        "access": "private",
        "visibility": "owner",
        "is_owner": True,
        "is_public": False,
        "language": "en",
        "locales": [{"locale": "en-US", "is_native": True}],
        "accent": None,
        "country": None,
        "gender": None,
        "preview_file_url": None,
    }


async def test_a_voice_is_renamed_and_deleted(http: Http, acme: Speaking) -> None:
    """Afterwards it is gone, and speaks no more."""
    renamed = await http.patch(f"/voices/{acme.voice}", json={"name": "Ada", "description": "Bright."})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "Ada")
    assert "name" in find_error(
        await http.patch(f"/voices/{acme.voice}", json={"gender": None}), 400, "invalid_request"
    )
    assert "name" in find_error(await http.patch(f"/voices/{acme.voice}", json={"name": ""}), 400, "invalid_request")
    deleted = await http.delete(f"/voices/{acme.voice}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    find_error(await http.get(f"/voices/{acme.voice}"), 404, "voice_not_found")
    find_error(await http.post("/tts/bytes", json=acme.ask("Hello.")), 404, "voice_not_found")


async def test_strangers_voices_are_not_there(
    http: Http, make_tenant: MakeTenant, make_voice: MakeVoice, stack: RunningStack
) -> None:
    """For whatever is asked of them; and a key needs the scope."""
    other = await make_tenant("other")
    foreign = await make_voice(other.id, embedding=embed("high"))
    for voice in (foreign, uuid4(), "nobody"):
        find_error(await http.get(f"/voices/{voice}"), 404, "voice_not_found")
        find_error(await http.patch(f"/voices/{voice}", json={"name": "Mine"}), 404, "voice_not_found")
        find_error(await http.delete(f"/voices/{voice}"), 404, "voice_not_found")
        find_error(await http.get("/voices", params={"starting_after": str(voice)}), 404, "voice_not_found")
    speaks = (await make_tenant("other", scopes=("speak",))).key
    async with httpx2.AsyncClient(base_url=f"{stack.relay_url}/cartesia", headers={"X-API-Key": speaks}) as weak:
        assert (await weak.get("/voices")).status_code == 200
        find_error(await weak.delete(f"/voices/{foreign}"), 403, "forbidden")
        find_error(await weak.post("/voices/clone", files={"clip": CLIP}), 403, "forbidden")


async def test_a_question_that_cannot_be_read_says_which_part(http: Http) -> None:
    """Limits, directions and forms."""
    for query in ({"limit": 0}, {"limit": 101}, {"limit": "many"}, {"ending_before": "x"}):
        assert next(iter(query)) in find_error(await http.get("/voices", params=query), 400, "invalid_request")
    find_error(await http.post("/voices/clone", json={"name": "Low"}), 415, "unsupported_media_type")
    nothing = await http.post("/voices/clone", data={"name": "Low"}, files={"other": CLIP})
    assert "`clip`" in find_error(nothing, 400, "invalid_request")
    german = await http.post("/voices/clone", data={"name": "Low", "language": "de"}, files={"clip": CLIP})
    assert "`language`" in find_error(german, 400, "invalid_request")


async def test_without_a_consent_there_is_no_voice(http: Http) -> None:
    """The error says how to come by one, and nothing is kept."""
    answer = await http.post("/voices/clone", data={"name": "Low", "language": "en"}, files={"clip": CLIP})
    told = find_error(answer, 400, "invalid_request")
    assert "POST /v1/consents" in told
    assert "X-Timbrelay-Consent" in told


async def test_a_clip_and_a_consent_become_a_voice(start_stack: StartStack, make_tenant: MakeTenant) -> None:
    """In the field or in the header; it speaks at once. What is no speech is refused with the reason."""
    stack, tenant = start_stack(), await make_tenant(f"acme {uuid4()}")
    headers = {"X-API-Key": tenant.key, "Authorization": f"Bearer {tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as http:
        grant = {
            "signer": "A. Person",
            "statement": "I agree.",
            "statement_version": "1",
            "language": "en",
            "purpose": "x",
        }
        consent = (await http.post("/v1/consents", json=grant)).json()["id"]
        form = {"name": "Low", "language": "en", "description": "Deep."}
        ways: list[dict[str, Any]] = [
            {"data": {**form, "consent": consent}},
            {"data": form, "headers": {"X-Timbrelay-Consent": consent}},
        ]
        for way in ways:
            made = await http.post("/cartesia/voices/clone", files={"clip": CLIP}, **way)
            assert made.status_code == 200, made.text
            voice = made.json()
            assert (voice["name"], voice["access"], voice["user_id"]) == ("Low", "private", str(tenant.id))
            asked = Speaking(tenant, voice["id"]).ask("Hello.")
            assert (await http.post("/cartesia/tts/bytes", json=asked)).status_code == 200
        noise = {"clip": ("a.wav", b"no sound", "audio/wav")}
        refused = await http.post("/cartesia/voices/clone", files=noise, **ways[0])
        find_error(refused, 422, "recording_not_audio")
        assert len((await http.get("/cartesia/voices")).json()["data"]) == 2


async def _token(http: Http, **asked: Any) -> str:
    answer = await http.post("/access-token", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    token: str = answer.json()["token"]
    return token


async def test_an_access_token_speaks_and_does_nothing_else(http: Http, acme: Speaking, stack: RunningStack) -> None:
    """Over HTTP and the WebSocket; it sees voices, and makes neither voices nor tokens."""
    token = await _token(http, grants={"tts": True}, expires_in=60)
    as_token = {"X-API-Key": "", "Authorization": f"Bearer {token}"}
    assert (await http.post("/tts/bytes", json=acme.ask("Hello."), headers=as_token)).status_code == 200
    assert (await http.get("/voices", headers=as_token)).status_code == 200
    find_error(await http.delete(f"/voices/{acme.voice}", headers=as_token), 403, "forbidden")
    find_error(await http.post("/access-token", json={}, headers=as_token), 403, "forbidden")
    async with dial(stack, query=f"?access_token={token}") as connection:
        await say(connection, acme.ask("Hello."), "c")
        assert kinds(await hear(connection, "c")) == ["chunk", "done"]


async def _keys(database: Database, tenant: UUID) -> list[Any]:
    async with database.transaction(tenant=tenant) as connection:
        query = select(api_keys).where(api_keys.c.name == NAME).order_by(api_keys.c.created_at)
        return list((await connection.execute(query)).all())


async def test_a_token_ends_by_itself(http: Http, acme: Speaking, database: Database) -> None:
    """After as long as was asked for, an hour at most, and never after the key that made it."""
    begun = datetime.now(UTC)
    await _token(http, expires_in=60)
    await _token(http)
    async with database.transaction(tenant=acme.tenant.id) as connection:
        ends = begun + timedelta(seconds=30)
        _, short = await create_key(connection, acme.tenant.id, name="short", scopes=[Scope.SPEAK], expires_at=ends)
    await _token_of(http, short)
    lives = [(key.expires_at - begun).total_seconds() for key in await _keys(database, acme.tenant.id)]
    assert [round(life, -1) for life in lives] == [60, 3600, 30]
    assert {tuple(key.scopes) for key in await _keys(database, acme.tenant.id)} == {("speak",)}
    token = await _token(http, expires_in=1)
    until = time.monotonic() + 10
    while (await http.get("/voices", headers={"X-API-Key": token})).status_code == 200:
        assert time.monotonic() < until
        await asyncio.sleep(0.1)


async def _token_of(http: Http, key: SecretStr) -> None:
    answer = await http.post("/access-token", json={}, headers={"X-API-Key": key.get_secret_value()})
    assert answer.status_code == 200, answer.text


async def test_a_token_is_on_record_without_itself(http: Http, acme: Speaking, database: Database) -> None:
    """Who made it, from where, for what and how long."""
    token = await _token(http)
    async with database.transaction(tenant=acme.tenant.id) as connection:
        rows = (await connection.execute(select(audit_log).where(audit_log.c.action == "key.created"))).all()
    [entry] = rows
    [key] = await _keys(database, acme.tenant.id)
    assert (entry.actor, entry.object_id, entry.origin) == (f"key:{acme.tenant.key_id}", str(key.id), ORIGIN)
    assert entry.detail["scopes"] == ["speak"]
    assert token not in repr(rows)


async def test_tokens_have_a_bound(http: Http, acme: Speaking, database: Database) -> None:
    """Of those that live; whoever has too many is told to ask for shorter lives."""
    rows = [
        {
            "id": uuid4(),
            "tenant_id": acme.tenant.id,
            "key_hash": uuid4().bytes * 2,
            "name": NAME,
            "scopes": ["speak"],
            "expires_at": datetime.now(UTC) + timedelta(hours=1),
        }
        for _ in range(MAX_TOKENS)
    ]
    async with database.transaction(tenant=acme.tenant.id) as connection:
        await connection.execute(insert(api_keys), rows)
    told = find_error(await http.post("/access-token", json={}), 429, "rate_limited")
    assert "expires_in" in told
    async with database.transaction(tenant=acme.tenant.id) as connection:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await connection.execute(update(api_keys).where(api_keys.c.id == rows[0]["id"]).values(expires_at=past))
    await _token(http)


async def test_a_token_for_what_is_not_here_is_refused(http: Http, make_tenant: MakeTenant) -> None:
    """Speech to text, agents, longer than an hour; and a key that may not speak makes none that may."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"grants": {"stt": True}}, "grants.stt"),
        ({"grants": {"tts": True, "agent": True}}, "grants.agent"),
        ({"grants": {}}, "grants.tts"),
        ({"expires_in": 3601}, "expires_in"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": "60"}, "expires_in"),
    ]
    for asked, field in cases:
        assert field in find_error(await http.post("/access-token", json=asked), 400, "invalid_request")
    mute: Tenant = await make_tenant("mute", scopes=("admin",))
    answer = await http.post("/access-token", json={}, headers={"X-API-Key": mute.key})
    find_error(answer, 403, "forbidden")
