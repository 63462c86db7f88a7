"""Consents over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import redis

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import silenced_key
from storage.voices.consents import load_consent_recording
from tests.conftest import MakeVoice, RunningStack, Tenant, wait_until
from tests.relay.api.conftest import (
    CONSENT,
    EMBEDDING,
    RECORDING,
    Enrol,
    Grant,
    Http,
    announce_nobody,
    check_problem,
    knock,
    read_actions,
)

ONE_RELAY = True


async def test_a_consent_is_kept_and_names_the_person_only_where_it_is_asked_for(http: Http) -> None:
    """The answer and the list hold the terms; reading the one shows who agreed to what."""
    answer = await http.post("/v1/consents", json=CONSENT)
    made = answer.json()
    assert (answer.status_code, made["state"], made["language"]) == (201, "active", "en-GB")
    assert answer.headers["location"] == f"/v1/consents/{made['id']}"
    assert "A. Person" not in answer.text
    listed = await http.get("/v1/consents")
    assert listed.json() == {"consents": [made], "next_cursor": None}
    shown = (await http.get(answer.headers["location"])).json()
    assert shown == {**made, "signer": "A. Person", "statement": CONSENT["statement"]}
    assert await read_actions(http) == ["consent.granted"]


async def test_a_form_keeps_what_was_spoken_sealed(
    http: Http, acme: Tenant, database: Database, keyring: Keyring
) -> None:
    """The recording of a consent comes in a form, and out again only with the consent's key."""
    answer = await http.post("/v1/consents", data=CONSENT, files={"recording": RECORDING})
    assert (answer.status_code, answer.json()["has_recording"]) == (201, True)
    async with database.transaction(tenant=acme.id) as connection:
        kept = await load_consent_recording(connection, keyring, acme.id, UUID(answer.json()["id"]))
    assert kept == RECORDING[1]


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"signer": None}, "signer"),
    ({"signer": " "}, "signer"),
    ({"signer": "a\0b"}, "signer"),
    ({"signer": "x" * 201}, "signer"),
    ({"statement": "x" * 4001}, "statement"),
    ({"language": "english please"}, "language"),
    ({"statement_version": "../../etc"}, "statement_version"),
    ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_at": "2999-01-01T00:00:00"}, "expires_at"),
    ({"expires_at": 4102444800}, "expires_at"),
    ({"expires_at": "9999-12-31T23:59:59-14:00"}, "expires_at"),
    ({"subject": "as it was called before"}, "subject"),
]


async def test_a_consent_that_cannot_be_read_names_the_field(http: Http) -> None:
    """Every field has bounds, and there are no others."""
    for change, field in UNREADABLE:
        check_problem(await http.post("/v1/consents", json={**CONSENT, **change}), 422, "invalid_request", field)
    assert (await http.get("/v1/consents")).json()["consents"] == []


async def test_a_list_is_read_page_by_page(http: Http, grant: Grant) -> None:
    """Newest first, each once, and a cursor of another list opens nothing."""
    made = [await grant(purpose=f"number {number}") for number in range(5)]
    seen: list[str] = []
    cursor = ""
    for _ in range(3):
        page = (await http.get("/v1/consents", params={"limit": 2, "cursor": cursor})).json()
        seen += [consent["id"] for consent in page["consents"]]
        cursor = page["next_cursor"] or ""
    assert (seen, cursor) == (made[::-1], "")
    first = (await http.get("/v1/consents", params={"limit": 2})).json()["next_cursor"]
    for wrong in (first[:-2], "x", "ä", "!" * 40, first + "AAAA"):
        check_problem(await http.get("/v1/consents", params={"cursor": wrong}), 422, "invalid_request", "cursor")
    check_problem(await http.get("/v1/voices", params={"cursor": first}), 422, "invalid_request", "cursor")


async def test_withdrawal_silences_and_deletes_every_voice_of_the_consent(
    http: Http, acme: Tenant, make_voice: MakeVoice, enrol: Enrol
) -> None:
    """The answer names the deletions; afterwards neither the voices nor the consent can be found."""
    ready = str(await make_voice(acme.id, embedding=EMBEDDING))
    consent = (await http.get(f"/v1/voices/{ready}")).json()["consent"]
    pending = (await enrol(consent=consent))["id"]
    kept = (await enrol())["id"]
    answer = await http.post(f"/v1/consents/{consent}/withdraw")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["consent"]["state"] == "withdrawn"
    deletions = {deletion["object_id"]: deletion for deletion in body["deletions"]}
    assert set(deletions) == {ready, pending, consent}
    assert {deletion["reason"] for deletion in body["deletions"]} == {"consent_withdrawn"}
    assert all(deletion["state"] == "done" and deletion["receipt"] for deletion in body["deletions"])
    for voice in (ready, pending):
        check_problem(await http.get(f"/v1/voices/{voice}"), 404, "unknown_voice", "voice")
    check_problem(await http.get(f"/v1/consents/{consent}"), 404, "unknown_consent", "consent")
    assert (await http.get(f"/v1/voices/{kept}")).status_code == 200
    assert "consent.withdrawn" in await read_actions(http)


async def test_every_voice_falls_silent_before_the_first_is_deleted(
    http: Http, stack: RunningStack, enrol: Enrol, grant: Grant
) -> None:
    """A worker that does not answer holds up the deletions, and no silence."""
    consent = await grant()
    voices = [(await enrol(consent=consent))["id"] for _ in range(4)]
    announce_nobody(stack)
    answer = await http.post(f"/v1/consents/{consent}/withdraw")
    assert answer.status_code == 202, answer.text
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        assert client.exists(*map(silenced_key, voices)) == len(voices)


async def test_without_redis_a_withdrawal_is_accepted_and_goes_on_later(
    http: Http, stack: RunningStack, acme: Tenant, make_voice: MakeVoice
) -> None:
    """Nothing speaks by the consent any more, and the answer says where to look for the rest."""
    voice = str(await make_voice(acme.id, embedding=EMBEDDING))
    consent = (await http.get(f"/v1/voices/{voice}")).json()["consent"]
    assert stack.valkey is not None
    stack.valkey.kill()
    try:
        answer = await http.post(f"/v1/consents/{consent}/withdraw")
    finally:
        stack.restart_valkey()
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"].startswith("/v1/deletions/")
    assert (await http.get(answer.headers["location"])).json()["state"] == "partial"
    check_problem(await http.get(f"/v1/voices/{voice}"), 404, "unknown_voice", "voice")


async def test_an_expired_or_withdrawn_consent_makes_no_voice(http: Http, grant: Grant) -> None:
    """A consent that permits nothing is 409, one that is not there 404."""
    ends = datetime.now(UTC) + timedelta(milliseconds=1500)
    expired = await grant(expires_at=ends.isoformat())
    form: dict[str, Any] = {"data": {"name": "demo", "consent": expired}, "files": {"recording": RECORDING}}
    await asyncio.to_thread(wait_until, lambda: datetime.now(UTC) > ends)
    answer = await http.post("/v1/voices", **form)
    check_problem(answer, 409, "consent_inactive", "consent")
    form["data"]["consent"] = str(uuid4())
    check_problem(await http.post("/v1/voices", **form), 404, "unknown_consent", "consent")


async def test_the_wordings_that_come_with_the_service(stack: RunningStack) -> None:
    """In at least four languages, each with a version and places for who, for whom and what for; no key needed."""
    async with knock(stack, None) as client:
        answer = await client.get("/v1/consents/statements")
        again = await client.get("/v1/consents/statements", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    statements = {statement["language"]: statement for statement in answer.json()["statements"]}
    assert {"en", "de", "fr", "es"} <= set(statements)
    for statement in statements.values():
        assert statement["version"]
        assert all(place in statement["text"] for place in ("{signer}", "{tenant}", "{purpose}"))
        assert "{tenant}" in statement["spoken"]
