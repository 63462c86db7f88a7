"""What a tenant's own keys administer: aliases, usage, deletions, keys, audit, retention, its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed

from storage.database import Database
from storage.evidence.jws import read_key_set
from storage.evidence.receipts import verify_receipt
from storage.tenancy.usage import Usage, add_usage
from storage.voices.voices import find_speaker
from tests.conftest import MakeTenant, MakeVoice, RunningStack, Tenant
from tests.relay.api.conftest import EMBEDDING, Http, check_problem, knock, read_actions
from tests.relay.conftest import open_socket


async def test_an_alias_stands_for_one_voice_at_a_time(
    http: Http, stranger: Http, acme: Tenant, make_voice: MakeVoice, database: Database
) -> None:
    """It moves from voice to voice, and goes without its voice; another tenant's voice takes none."""
    one, two = [await make_voice(acme.id, embedding=EMBEDDING) for _ in range(2)]
    assert (await http.put("/v1/aliases/narrator", json={"voice": str(one)})).json()["voice"] == str(one)
    assert (await http.put("/v1/aliases/narrator", json={"voice": str(two)})).status_code == 200
    assert (await http.put("/v1/aliases/guide", json={"voice": str(two)})).status_code == 200
    assert (await http.get(f"/v1/voices/{two}")).json()["aliases"] == ["guide", "narrator"]
    async with database.transaction(tenant=acme.id) as connection:
        speaker = await find_speaker(connection, acme.id, "narrator")
    assert speaker is not None and speaker.voice == two
    page = (await http.get("/v1/aliases", params={"limit": 1})).json()
    following = (await http.get("/v1/aliases", params={"limit": 1, "cursor": page["next_cursor"]})).json()
    assert [item["alias"] for item in page["aliases"] + following["aliases"]] == ["guide", "narrator"]
    assert following["next_cursor"] is None
    check_problem(await stranger.put("/v1/aliases/mine", json={"voice": str(one)}), 404, "unknown_voice", "voice")
    check_problem(await stranger.delete("/v1/aliases/guide"), 404, "unknown_alias", "alias")
    assert (await http.delete("/v1/aliases/guide")).status_code == 204
    check_problem(await http.delete("/v1/aliases/guide"), 404, "unknown_alias", "alias")
    for name in ("a%20b", "%00", "..%2e", "a" * 65, str(uuid4()), "%C3%A4"):
        put = await http.put(f"/v1/aliases/{name}", json={"voice": str(one)})
        check_problem(put, 422, "invalid_request", "alias")
        check_problem(await http.delete(f"/v1/aliases/{name}"), 404, "unknown_alias", "alias")
    assert (await read_actions(http)) == ["alias.set"] * 3 + ["alias.removed"]
    entries = (await http.get("/v1/admin/audit")).text
    assert str(one) in entries
    assert "narrator" not in entries and "guide" not in entries, "an alias may be a person's name"


async def test_usage_is_listed_by_day_and_voice(http: Http, acme: Tenant, database: Database) -> None:
    """Newest day first, of the days that are asked for; a range that is none is refused."""
    voices, today = [uuid4(), uuid4()], datetime.now(UTC).date()
    rows = [Usage(today - timedelta(days=day), voice, 1, 2, 30, 4000) for day in (0, 1, 40) for voice in voices]
    async with database.transaction(tenant=acme.id) as connection:
        await add_usage(connection, acme.id, rows)
    body = (await http.get("/v1/usage")).json()
    assert len(body["usage"]) == 4
    assert body["usage"][0] == {
        "day": today.isoformat(),
        "voice": str(max(voices)),
        "contexts": 1,
        "sentences": 2,
        "characters": 30,
        "audio_ms": 4000,
    }
    query: dict[str, Any] = {"from": str(today - timedelta(days=60)), "voice": str(voices[0]), "limit": 2}
    first = (await http.get("/v1/usage", params=query)).json()
    second = (await http.get("/v1/usage", params={**query, "cursor": first["next_cursor"]})).json()
    days = [date.fromisoformat(item["day"]) for item in first["usage"] + second["usage"]]
    assert days == [today - timedelta(days=day) for day in (0, 1, 40)]
    for wrong, field in (({"from": "2026-02-01", "to": "2026-01-01"}, "from"), ({"to": "yesterday"}, "to")):
        check_problem(await http.get("/v1/usage", params=wrong), 422, "invalid_request", field)


async def test_a_receipt_is_verified_with_keys_that_anybody_may_read(
    http: Http, stranger: Http, stack: RunningStack, acme: Tenant, make_voice: MakeVoice
) -> None:
    """The JWK set takes no key; a deletion is its tenant's alone."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    deletion = (await http.delete(f"/v1/voices/{voice}")).json()["deletion"]
    async with knock(stack, None) as anybody:
        keys = await anybody.get("/v1/receipts/keys")
    receipt = verify_receipt(deletion["receipt"], read_key_set(keys.text))
    assert receipt.object.matches(voice)
    path = f"/v1/deletions/{deletion['id']}"
    assert (await http.get(path)).json() == deletion
    assert (await http.get("/v1/deletions")).json() == {"deletions": [deletion], "next_cursor": None}
    check_problem(await stranger.get(path), 404, "unknown_deletion", "deletion")


async def test_a_key_is_made_rotated_and_revoked(http: Http, stack: RunningStack, stranger: Http) -> None:
    """Its text is shown once; the old one works for the overlap; a revoked one opens nothing and closes its sockets."""
    expires = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    made = await http.post("/v1/admin/keys", json={"name": "reader", "scopes": ["speak"], "expires_at": expires})
    assert (made.status_code, made.json()["scopes"], made.headers["cache-control"]) == (201, ["speak"], "no-store")
    key, path = made.json().pop("key"), f"/v1/admin/keys/{made.json()['id']}"
    assert key not in (await http.get("/v1/admin/keys")).text
    rotated = (await http.post(f"{path}/rotate", json={"overlap_s": 60})).json()
    check_problem(await http.post(f"{path}/rotate", json={}), 409, "wrong_state")
    check_problem(await stranger.post(f"{path}/rotate", json={}), 404, "unknown_key", "key")
    check_problem(await stranger.delete(path), 404, "unknown_key", "key")
    for text in (key, rotated["key"]):
        async with knock(stack, text) as client:
            assert (await client.get("/v1/voices")).status_code == 200
    async with open_socket(stack, rotated["key"]) as socket:
        assert (await http.delete(f"/v1/admin/keys/{rotated['id']}")).status_code == 204
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 10)
    async with knock(stack, rotated["key"]) as client:
        check_problem(await client.get("/v1/voices"), 401, "unauthorized", "Authorization")
    check_problem(await http.delete(f"/v1/admin/keys/{rotated['id']}"), 404, "unknown_key", "key")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "x", "scopes": ["operator"]}, "scopes.0"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x"}, "scopes"),
    ]
    for body, field in wrong:
        check_problem(await http.post("/v1/admin/keys", json=body), 422, "invalid_request", field)
    assert await read_actions(http) == ["key.created", "key.rotated", "key.revoked"]


async def test_the_audit_log_is_read_by_object_action_and_time(http: Http, acme: Tenant) -> None:
    """In order and page by page; who acted is named by the id of the key."""
    for days in (10, 20, 30):
        assert (await http.put("/v1/admin/retention", json={"days": days})).status_code == 200
    page = (await http.get("/v1/admin/audit", params={"limit": 2})).json()
    rest = (await http.get("/v1/admin/audit", params={"limit": 2, "cursor": page["next_cursor"]})).json()
    entries = page["entries"] + rest["entries"]
    assert [entry["sequence"] for entry in entries] == [1, 2, 3]
    assert entries[1]["previous_hash"] == entries[0]["hash"]
    assert entries[2]["detail"] == {"before": 20, "days": 30}
    assert {(entry["actor"], entry["origin"]) for entry in entries} == {(f"key:{acme.key_id}", "127.0.0.1")}

    async def count(**query: str) -> int:
        return len((await http.get("/v1/admin/audit", params=query)).json()["entries"])

    assert await count(object=str(acme.id), action="retention.changed", since=entries[1]["at"]) == 2
    assert await count(until=entries[1]["at"]) == 1
    assert await count(action="voice.created") == 0
    for query, field in (({"since": "today"}, "since"), ({"object": "a b"}, "object"), ({"action": "\x7f"}, "action")):
        check_problem(await http.get("/v1/admin/audit", params=query), 422, "invalid_request", field)


async def test_retention_is_set_only_as_it_was_read(http: Http) -> None:
    """From one day to three years; limits are shown and not the tenant's to set."""
    read = await http.get("/v1/admin/retention")
    assert read.json() == {"days": 365}
    stale = {"If-Match": read.headers["etag"]}
    assert (await http.put("/v1/admin/retention", json={"days": 30}, headers=stale)).json() == {"days": 30}
    again = await http.put("/v1/admin/retention", json={"days": 60}, headers=stale)
    check_problem(again, 412, "precondition_failed", "If-Match")
    for days in (0, 1096, "many", None):
        check_problem(await http.put("/v1/admin/retention", json={"days": days}), 422, "invalid_request", "days")
    assert (await http.get("/v1/admin/limits")).json()["requests_per_minute"] == 600
    check_problem(await http.put("/v1/admin/limits", json={}), 405, "method_not_allowed")


async def test_a_tenant_ends_only_when_it_is_named(
    http: Http, stack: RunningStack, acme: Tenant, make_tenant: MakeTenant, make_voice: MakeVoice, database: Database
) -> None:
    """Its voices go with it, and keys of other scopes open nothing any more."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    speaker = await make_tenant("acme", scopes=("speak",))
    check_problem(await http.delete("/v1/admin/tenant"), 422, "invalid_request", "confirm")
    check_problem(await http.delete("/v1/admin/tenant", params={"confirm": "Acme"}), 409, "not_confirmed", "confirm")
    answer = await http.delete("/v1/admin/tenant", params={"confirm": "acme"})
    assert answer.status_code in (200, 202), answer.text
    assert answer.json()["deletion"]["object_kind"] == "tenant"
    async with knock(stack, speaker.key) as client:
        assert (await client.get("/v1/voices")).status_code == 401
    async with database.transaction(tenant=acme.id) as connection:
        assert await find_speaker(connection, acme.id, str(voice)) is None


async def test_the_operator_makes_limits_suspends_and_ends_tenants(
    operator: Http, http: Http, stack: RunningStack, acme: Tenant
) -> None:
    """A suspended tenant makes nothing and speaks nothing until it is let in again; the operator sees no voices."""
    made = await operator.post("/v1/operator/tenants", json={"name": "new", "limits": {"voices": 1}})
    assert (made.status_code, made.json()["limits"]["voices"], made.json()["state"]) == (201, 1, "active")
    path = made.headers["location"]
    check_problem(await operator.post("/v1/operator/tenants", json={"name": "new"}), 409, "name_taken", "name")
    key = (await operator.post(f"{path}/keys", json={"name": "first", "scopes": ["admin"]})).json()["key"]
    async with knock(stack, key) as client:
        assert (await client.get("/v1/admin/limits")).json()["voices"] == 1
        speaker = {"name": "speaker", "scopes": ["speak"]}
        async with open_socket(stack, (await client.post("/v1/admin/keys", json=speaker)).json()["key"]) as socket:
            tag = {"If-Match": made.headers["etag"]}
            suspended = await operator.patch(path, json={"state": "suspended"}, headers=tag)
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(socket.recv(), 10)
        assert suspended.json()["state"] == "suspended"
        check_problem(await client.post("/v1/admin/keys", json=speaker), 403, "tenant_suspended")
        stale = await operator.patch(path, json={"state": "active"}, headers={"If-Match": made.headers["etag"]})
        check_problem(stale, 412, "precondition_failed", "If-Match")
        assert (await operator.patch(path, json={"state": "active", "name": "newer"})).json()["name"] == "newer"
        assert await read_actions(client) == ["key.created", "key.created", "tenant.changed", "tenant.changed"]
    listed = (await operator.get("/v1/operator/tenants")).json()["tenants"]
    assert [tenant["name"] for tenant in listed] == ["newer", "acme"]
    check_problem(await operator.get(f"/v1/operator/tenants/{uuid4()}"), 404, "unknown_tenant", "tenant")
    check_problem(await operator.patch(path, json={"state": "deleted"}), 422, "invalid_request", "state")
    assert (await operator.delete(path)).status_code in (200, 202)
    late = await operator.post(f"{path}/keys", json={"name": "late", "scopes": ["admin"]})
    check_problem(late, 409, "wrong_state")
    check_problem(await operator.get("/v1/voices"), 403, "insufficient_scope", "Authorization")
    check_problem(await http.get(path), 403, "insufficient_scope", "Authorization")


async def test_the_operator_sees_how_the_service_stands(operator: Http) -> None:
    """Only what the relay knows: no worker is there, and nothing is degraded."""
    state = (await operator.get("/v1/operator/service")).json()
    assert (state["relays"], state["degradation"]) == (1, "none")
    assert state["workers"]["present"] in (0, 1)
    assert state["release"]
