"""Withdrawals that meet each other, or very many voices."""

from __future__ import annotations

import asyncio

import psycopg
from sqlalchemy import make_url

from storage.settings import Settings
from tests.conftest import MakeVoice, RunningStack, Tenant
from tests.relay.api.conftest import EMBEDDING, RECORDING, Grant, Http, read_actions

MANY = 1200
"""More voices than the audit log takes acts at once."""
_VOICES = (
    "INSERT INTO voices (id, tenant_id, consent_id, name, state, version, latest_version)"
    " SELECT gen_random_uuid(), c.tenant_id, c.id, 'many', 'ready', 1, 1 FROM consents c, generate_series(1, %s)"
    " WHERE c.id = %s"
)


def _add_voices(settings: Settings, consent: str, count: int) -> None:
    url = make_url(settings.owner_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as connection:
        connection.execute(_VOICES, (count, consent))


async def test_a_consent_with_any_number_of_voices_can_be_withdrawn(
    http: Http, grant: Grant, settings: Settings
) -> None:
    """It permits nothing from the answer on; what was not begun with the request is deleted with the consent."""
    consent = await grant()
    _add_voices(settings, consent, MANY)
    answer = await http.post(f"/v1/consents/{consent}/withdraw")
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert body["consent"]["state"] == "withdrawn"
    (own,) = (deletion for deletion in body["deletions"] if deletion["object_kind"] == "consent")
    assert own["object_id"] == consent
    assert len(body["deletions"]) < MANY


async def test_two_who_withdraw_at_once_are_told_the_same(http: Http, grant: Grant) -> None:
    """Neither is refused, and it is on record once."""
    for _ in range(5):
        consent = await grant()
        answers = await asyncio.gather(*(http.post(f"/v1/consents/{consent}/withdraw") for _ in range(4)))
        assert {answer.status_code for answer in answers} <= {200, 202}, [answer.text for answer in answers]
        assert len({answer.json()["deletions"][-1]["id"] for answer in answers}) == 1
        again = await http.post(f"/v1/consents/{consent}/withdraw")
        assert (again.status_code, again.json()["deletions"][-1]["state"]) == (200, "done")
        assert again.json()["consent"]["state"] == "deleted"
        assert (await http.get(f"/v1/consents/{consent}")).status_code == 404
    assert (await read_actions(http)).count("consent.withdrawn") == 5


async def test_a_recording_that_loses_its_consent_is_on_record_as_rejected(
    http: Http, acme: Tenant, grant: Grant, make_voice: MakeVoice
) -> None:
    """The voice goes on with what it has by another consent; why its new recording does not come is in the log."""
    voice, consent = await make_voice(acme.id, embedding=EMBEDDING), await grant()
    sent = await http.post(f"/v1/voices/{voice}/versions", data={"consent": consent}, files={"recording": RECORDING})
    assert sent.status_code == 202, sent.text
    assert (await http.post(f"/v1/consents/{consent}/withdraw")).status_code in (200, 202)
    assert (await http.get(f"/v1/voices/{voice}")).json()["state"] == "ready"
    entries = (await http.get("/v1/admin/audit", params={"limit": 100})).json()["entries"]
    (rejected,) = (entry for entry in entries if entry["action"] == "voice.rejected")
    (withdrawn,) = (entry for entry in entries if entry["action"] == "consent.withdrawn")
    assert (rejected["object_kind"], rejected["object_id"]) == ("voice", str(voice))
    assert rejected["detail"] == {"version": 2, "code": "consent_withdrawn"}
    assert (rejected["actor"], rejected["origin"]) == (withdrawn["actor"], withdrawn["origin"])


async def test_without_redis_a_withdrawal_asks_celery_once_and_not_for_each_voice(
    stack: RunningStack, http: Http, grant: Grant, settings: Settings
) -> None:
    """Each time would be waited for; upkeep finds all of them."""
    consent = await grant()
    _add_voices(settings, consent, 5)
    assert stack.valkey is not None
    stack.valkey.kill()
    try:
        answer = await http.post(f"/v1/consents/{consent}/withdraw")
    finally:
        stack.valkey.start()
    assert (answer.status_code, len(answer.json()["deletions"])) == (202, 6)
    assert stack.log.read_text().count("a deletion waits for the next look") == 1
