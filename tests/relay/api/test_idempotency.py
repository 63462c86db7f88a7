"""The header `Idempotency-Key`: the same request is done once."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import update

from storage.database import Database
from storage.tables import idempotency_keys
from tests.conftest import Tenant
from tests.relay.api.conftest import CONSENT, RECORDING, Grant, Http, check_problem

ONE_RELAY = True


async def test_the_same_request_is_done_once_and_answered_twice(http: Http, grant: Grant) -> None:
    """Whatever the boundary and order of a form: it is the same voice, and the answer says that it is a replay."""
    consent = await grant()
    headers = {"Idempotency-Key": "3f1c7a1e"}
    first = await http.post(
        "/v1/voices", data={"name": "a", "consent": consent}, files={"recording": RECORDING}, headers=headers
    )
    again = await http.post(
        "/v1/voices", data={"consent": consent, "name": "a"}, files={"recording": RECORDING}, headers=headers
    )
    assert (again.status_code, again.json()) == (first.status_code, first.json()) == (202, first.json())
    assert again.headers["location"] == first.headers["location"]
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    assert len((await http.get("/v1/voices")).json()["voices"]) == 1


async def test_another_request_with_the_same_key_is_refused(http: Http, stranger: Http, grant: Grant) -> None:
    """Another body, recording or path is 422 and does nothing; another tenant's key is another key."""
    consent = await grant()
    headers = {"Idempotency-Key": "one"}
    form: dict[str, Any] = {"data": {"name": "a", "consent": consent}, "files": {"recording": RECORDING}}
    assert (await http.post("/v1/voices", **form, headers=headers)).status_code == 202
    other_sound = {**form, "files": {"recording": ("a.wav", b"RIFF...!", "audio/wav")}}
    for path, content in [
        ("/v1/voices", other_sound),
        ("/v1/voices", {**form, "data": {**form["data"], "name": "b"}}),
        ("/v1/consents", {"json": CONSENT}),
    ]:
        answer = await http.post(path, **content, headers=headers)
        check_problem(answer, 422, "idempotency_key_reused", "Idempotency-Key")
    assert (await stranger.post("/v1/consents", json=CONSENT, headers=headers)).status_code == 201
    assert len((await http.get("/v1/voices")).json()["voices"]) == 1


async def test_two_at_once_make_one(http: Http) -> None:
    """Of those that meet the first one under way each is told so (409), and nothing is made twice."""
    headers = {"Idempotency-Key": "both"}
    answers = await asyncio.gather(*(http.post("/v1/consents", json=CONSENT, headers=headers) for _ in range(6)))
    made = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    assert made and len(set(made)) == 1
    for answer in answers:
        if answer.status_code != 201:
            check_problem(answer, 409, "request_under_way", "Idempotency-Key")
    assert len((await http.get("/v1/consents")).json()["consents"]) == 1


async def test_one_that_is_under_way_is_told_when_to_come_back(http: Http, acme: Tenant, database: Database) -> None:
    """409 with a time, as long as the first is not answered."""
    headers = {"Idempotency-Key": "slow"}
    assert (await http.post("/v1/consents", json=CONSENT, headers=headers)).status_code == 201
    async with database.transaction(tenant=acme.id) as connection:
        await connection.execute(update(idempotency_keys).values(status=None, response=None))
    answer = await http.post("/v1/consents", json=CONSENT, headers=headers)
    problem = check_problem(answer, 409, "request_under_way", "Idempotency-Key")
    assert problem["retryable"] and problem["retry_after_ms"] == 1000


async def test_a_request_that_failed_may_be_sent_again(http: Http, grant: Grant) -> None:
    """What was refused has used up no key."""
    headers = {"Idempotency-Key": "second-try"}
    form: dict[str, Any] = {"data": {"name": "a", "consent": "none"}, "files": {"recording": RECORDING}}
    check_problem(await http.post("/v1/voices", **form, headers=headers), 404, "unknown_consent", "consent")
    unknown = {**form, "data": {"name": "a", "consent": "00000000-0000-4000-8000-000000000000"}}
    check_problem(await http.post("/v1/voices", **unknown, headers=headers), 404, "unknown_consent", "consent")
    form["data"]["consent"] = await grant()
    assert (await http.post("/v1/voices", **form, headers=headers)).status_code == 202


async def test_a_replay_never_shows_a_key_again(http: Http) -> None:
    """The text of an API key is in the first answer and nowhere else."""
    body, headers = {"name": "x", "scopes": ["speak"]}, {"Idempotency-Key": "new key"}
    check_problem(
        await http.post("/v1/admin/keys", json=body, headers=headers), 422, "invalid_request", "Idempotency-Key"
    )
    headers = {"Idempotency-Key": "new-key"}
    first = (await http.post("/v1/admin/keys", json=body, headers=headers)).json()
    again = (await http.post("/v1/admin/keys", json=body, headers=headers)).json()
    assert first["key"].startswith("tr_")
    assert again == {**first, "key": None}


async def test_what_was_made_and_deleted_is_not_made_again(http: Http, grant: Grant) -> None:
    """A replay after the deletion is 410."""
    headers = {"Idempotency-Key": "gone"}
    form: dict[str, Any] = {"data": {"name": "a", "consent": await grant()}, "files": {"recording": RECORDING}}
    made = await http.post("/v1/voices", **form, headers=headers)
    assert (await http.delete(made.headers["location"])).status_code == 200
    check_problem(await http.post("/v1/voices", **form, headers=headers), 410, "gone", "Idempotency-Key")
