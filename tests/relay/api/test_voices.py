"""Voices over HTTP: made, read, changed, replaced, handed out, deleted."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from typing import Any
from uuid import UUID, uuid4

import redis
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.redis import silenced_key
from storage.voices.versions import Enrolled, complete_enrolment, load_embedding, report_stage
from tests.conftest import MakeVoice, RunningStack, Tenant
from tests.relay.api.conftest import EMBEDDING, RECORDING, Enrol, Grant, Http, check_problem, read_actions

ONE_RELAY = True


async def test_a_recording_becomes_a_pending_voice_of_its_tenant_alone(
    http: Http, stranger: Http, enrol: Enrol, grant: Grant
) -> None:
    """The owner finds it in every list; another tenant's key reads, changes, uses and deletes nothing of it."""
    consent = await grant()
    made = await enrol(consent=consent)
    assert (made["state"], made["version"], made["enrolment"]["stage"]) == ("pending", 0, "waiting")
    path = f"/v1/voices/{made['id']}"
    assert (await http.get(path)).json() == made
    assert (await http.get("/v1/voices")).json() == {"voices": [made], "next_cursor": None}
    assert (await stranger.get("/v1/voices")).json() == {"voices": [], "next_cursor": None}
    attempts: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "", {}),
        ("PATCH", "", {"json": {"name": "mine"}}),
        ("POST", "/disable", {}),
        ("POST", "/enable", {}),
        ("GET", "/export", {}),
        ("DELETE", "", {}),
    ]
    for method, more, content in attempts:
        check_problem(await stranger.request(method, path + more, **content), 404, "unknown_voice", "voice")
    form = {"name": "demo", "consent": consent}
    stolen = await stranger.post("/v1/voices", data=form, files={"recording": RECORDING})
    check_problem(stolen, 404, "unknown_consent", "consent")
    assert (await http.get(path)).json() == made
    assert await read_actions(http) == ["consent.granted", "voice.created"]


async def test_a_form_that_cannot_be_read_names_the_field(http: Http, grant: Grant) -> None:
    """No file, no name, no consent, too many bytes, no form at all: each has its own sentence."""
    consent = await grant()
    form = {"name": "demo", "consent": consent}
    file = {"recording": RECORDING}
    big, huge = ({"recording": ("a.wav", b"x" * size)} for size in (70_000, 700_000))
    cases: list[tuple[dict[str, Any], int, str, str | None]] = [
        ({"data": form}, 415, "unsupported_media_type", "Content-Type"),
        ({"json": form}, 415, "unsupported_media_type", "Content-Type"),
        ({"data": {"name": "demo"}, "files": file}, 422, "invalid_request", "consent"),
        ({"data": {"consent": consent}, "files": file}, 422, "invalid_request", "name"),
        ({"data": {**form, "more": "x"}, "files": file}, 422, "invalid_request", "more"),
        ({"data": form, "files": {"other": RECORDING}}, 422, "invalid_request", "recording"),
        ({"data": {**form, "recording": "text"}, "files": {"x": ("", b"")}}, 422, "invalid_request", "recording"),
        ({"data": {**form, "name": ["a", "b"]}, "files": file}, 422, "invalid_request", None),
        ({"data": {**form, "name": "x" * 300}, "files": file}, 422, "invalid_request", "name"),
        ({"data": {**form, "name": "a\0b"}, "files": file}, 422, "invalid_request", "name"),
        ({"data": {**form, "consent": "a\0b"}, "files": file}, 404, "unknown_consent", "consent"),
        ({"data": {**form, "consent": "mine"}, "files": file}, 404, "unknown_consent", "consent"),
        ({"data": {**form, "consent": str(uuid4())}, "files": file}, 404, "unknown_consent", "consent"),
        ({"data": form, "files": big}, 413, "recording_too_large", "recording"),
        ({"data": form, "files": huge}, 413, "recording_too_large", "recording"),
        ({"content": b"--x", "headers": {"Content-Type": "multipart/form-data"}}, 422, "invalid_request", None),
    ]
    for arguments, status, code, field in cases:
        check_problem(await http.post("/v1/voices", **arguments), status, code, field)
    assert (await http.get("/v1/voices")).json()["voices"] == []


async def test_lists_are_filtered_and_go_on_where_they_ended(http: Http, acme: Tenant, make_voice: MakeVoice) -> None:
    """By state and by name; a cursor is good for its own filters alone."""
    ready = [str(await make_voice(acme.id, embedding=EMBEDDING, name=name)) for name in ("one", "two", "one")]
    pending = str(await make_voice(acme.id, name="one"))

    async def ids(**query: Any) -> list[str]:
        answer = await http.get("/v1/voices", params=query)
        return [voice["id"] for voice in answer.json()["voices"]]

    assert await ids(state="ready") == ready[::-1]
    assert await ids(name="one") == [pending, ready[2], ready[0]]
    assert await ids(name="one", state="ready") == [ready[2], ready[0]]
    first = (await http.get("/v1/voices", params={"limit": 1, "name": "one"})).json()
    assert await ids(limit=1, name="one", cursor=first["next_cursor"]) == [ready[2]]
    answer = await http.get("/v1/voices", params={"cursor": first["next_cursor"]})
    check_problem(answer, 422, "invalid_request", "cursor")
    for query, field in (({"state": "gone"}, "state"), ({"limit": 0}, "limit"), ({"limit": 10**30}, "limit")):
        check_problem(await http.get("/v1/voices", params=query), 422, "invalid_request", field)
    check_problem(await http.get("/v1/voices?name=a%00b"), 422, "invalid_request", "name")


async def test_whoever_waits_is_told_when_the_enrolment_has_ended(
    http: Http, acme: Tenant, make_voice: MakeVoice, database: Database, keyring: Keyring
) -> None:
    """The stage is what is being done; a long poll ends with the enrolment, or at its own end."""
    pending = await make_voice(acme.id)
    async with database.transaction(tenant=acme.id) as connection:
        await report_stage(connection, acme.id, pending, 1, "decoding")
    shown = (await http.get(f"/v1/voices/{pending}", params={"wait": 0.1})).json()
    assert (shown["state"], shown["enrolment"]["stage"]) == ("pending", "decoding")
    waiting = asyncio.create_task(http.get(f"/v1/voices/{pending}", params={"wait": 30}))
    async with database.transaction(tenant=acme.id) as connection:
        await _finish(connection, keyring, acme, pending)
    done = (await asyncio.wait_for(waiting, 10)).json()
    assert (done["state"], done["version"], done["enrolment"]["quality"]) == ("ready", 1, 81)
    for wait in ("-1", "31", "soon", "nan", "inf"):
        answer = await http.get(f"/v1/voices/{uuid4()}", params={"wait": wait})
        check_problem(answer, 422, "invalid_request", "wait")


async def _finish(connection: AsyncConnection, keyring: Keyring, tenant: Tenant, voice: UUID, version: int = 1) -> None:
    content = Enrolled(b"fLaC", EMBEDDING, 6.0, 81, {"noise": 0.9})
    await complete_enrolment(connection, keyring, tenant.id, voice, version, content)


async def test_a_voice_is_renamed_only_as_it_was_read(http: Http, acme: Tenant, make_voice: MakeVoice) -> None:
    """`If-Match` (RFC 9110): the tag that was read, a list, `*`; any other is 412 and changes nothing."""
    path = f"/v1/voices/{await make_voice(acme.id, embedding=EMBEDDING)}"
    read = await http.get(path)
    tag = read.headers["etag"]
    assert (await http.get(path, headers={"If-None-Match": f'"x", W/{tag}'})).status_code == 304
    renamed = await http.patch(path, json={"name": "new"}, headers={"If-Match": f'"x", {tag}'})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "new")
    assert renamed.headers["etag"] == (await http.get(path)).headers["etag"] != tag
    for stale in (tag, f"W/{renamed.headers['etag']}", '"x"'):
        answer = await http.patch(path, json={"name": "again"}, headers={"If-Match": stale})
        check_problem(answer, 412, "precondition_failed", "If-Match")
    check_problem(await http.delete(path, headers={"If-Match": tag}), 412, "precondition_failed", "If-Match")
    answer = await http.patch(path, json={"name": "again"}, headers={"If-Match": "no quotes"})
    check_problem(answer, 422, "invalid_request", "If-Match")
    assert (await http.patch(path, json={"name": "last"}, headers={"If-Match": "*"})).json()["name"] == "last"
    assert (await read_actions(http))[-2:] == ["voice.renamed", "voice.renamed"]


async def test_a_disabled_voice_is_silent_until_it_is_enabled(
    http: Http, stack: RunningStack, acme: Tenant, make_voice: MakeVoice, database: Database, keyring: Keyring
) -> None:
    """All workers are told at once; what is disabled twice, or enabled twice, is 409."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    path = f"/v1/voices/{voice}"
    with redis.Redis.from_url(stack.services.variables["REDIS_URL"]) as client:
        assert (await http.post(f"{path}/disable")).json()["state"] == "disabled"
        assert client.exists(silenced_key(voice))
        check_problem(await http.post(f"{path}/disable"), 409, "wrong_state")
        async with database.transaction(tenant=acme.id) as connection:
            assert await load_embedding(connection, keyring, acme.id, voice, 1) is None
        assert (await http.post(f"{path}/enable")).json()["state"] == "ready"
        assert not client.exists(silenced_key(voice))
    check_problem(await http.post(f"{path}/enable"), 409, "wrong_state")
    assert await read_actions(http) == ["voice.disabled", "voice.enabled"]


async def test_another_recording_is_a_new_version_and_the_voice_speaks_meanwhile(
    http: Http, acme: Tenant, make_voice: MakeVoice, grant: Grant, database: Database, keyring: Keyring
) -> None:
    """One recording waits at a time; when it is enrolled the voice speaks with it."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    path, consent = f"/v1/voices/{voice}/versions", await grant()
    answer = await http.post(path, data={"consent": consent}, files={"recording": RECORDING})
    body = answer.json()
    assert (answer.status_code, body["state"], body["version"], body["enrolment"]["version"]) == (202, "ready", 1, 2)
    again = await http.post(path, data={"consent": consent}, files={"recording": RECORDING})
    check_problem(again, 409, "wrong_state")
    async with database.transaction(tenant=acme.id) as connection:
        await _finish(connection, keyring, acme, voice, 2)
    shown = (await http.get(f"/v1/voices/{voice}")).json()
    assert (shown["version"], shown["consent"]) == (2, consent)


async def test_an_export_holds_everything_and_is_on_record(http: Http, acme: Tenant, make_voice: MakeVoice) -> None:
    """A zip file with what is held on the voice; that it was handed out is in the audit log."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    answer = await http.get(f"/v1/voices/{voice}/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"] == f'attachment; filename="voice-{voice}.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = set(archive.namelist())
        assert {"voice.json", "versions/1/embedding.f32", "versions/1/recording.flac"} <= names
        assert json.loads(archive.read("manifest.json"))["voice"] == str(voice)
    assert await read_actions(http) == ["voice.exported"]


async def test_a_deleted_voice_leaves_a_receipt_and_nothing_else(
    http: Http, stranger: Http, acme: Tenant, make_voice: MakeVoice
) -> None:
    """200 with the receipt; deleting once more gives the same one; two at once agree."""
    path = f"/v1/voices/{await make_voice(acme.id, embedding=EMBEDDING)}"
    first, second = await asyncio.gather(http.delete(path), http.delete(path))
    assert {first.status_code, second.status_code} <= {200, 202}
    third = await http.delete(path)
    deletion = third.json()["deletion"]
    assert (third.status_code, deletion["state"], deletion["reason"]) == (200, "done", "requested")
    assert {answer.json()["deletion"]["id"] for answer in (first, second)} == {deletion["id"]}
    assert deletion["receipt"].count(".") == 2
    check_problem(await http.get(path), 404, "unknown_voice", "voice")
    check_problem(await stranger.delete(path), 404, "unknown_voice", "voice")
    assert (await read_actions(http)).count("voice.deletion_requested") == 1


async def test_ids_are_looked_up_and_never_followed(http: Http) -> None:
    """What is no id, however it is written, is the id of nothing."""
    for name in ("x", "..%2f..%2fetc", "%00", "'%20OR%201=1--", "%f0%9f%92%a9", "a" * 250, str(uuid4())):
        answer = await http.get(f"/v1/voices/{name}")
        check_problem(answer, 404, answer.json()["code"], answer.json()["field"])
        assert answer.json()["code"] in ("unknown_voice", "not_found")
