"""What attackers and accidents send: bodies, headers, ids, and questions about other people's ids."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from starlette.requests import Request

from relay.api import bodies
from relay.api.uploads import read_form
from relay.errors import RequestRefused
from tests.conftest import MakeVoice, RunningStack, Tenant
from tests.relay.api.conftest import CONSENT, EMBEDDING, RECORDING, Enrol, Http, check_problem

ONE_RELAY = True
JSON = {"Content-Type": "application/json"}


async def test_bodies_that_are_no_json_of_ours_are_refused(http: Http) -> None:
    """Repeated keys, endless nesting, halves of characters, other types, too many bytes: each in a sentence."""
    text = json.dumps(CONSENT)
    cases: list[tuple[bytes, dict[str, str], int, str]] = [
        (b"", JSON, 422, "invalid_request"),
        (b"not json", JSON, 422, "invalid_request"),
        (b"\xff\xfe{}", JSON, 422, "invalid_request"),
        (b"[" * 30_000, JSON, 422, "invalid_request"),
        (b'{"signer":' * 6_000, JSON, 422, "invalid_request"),
        (b"[" * 20 + b"]" * 20, JSON, 422, "invalid_request"),
        ((text[:-1] + ', "signer": "B"}').encode(), JSON, 422, "invalid_request"),
        (text.replace("A. Person", "\\ud800").encode(), JSON, 422, "invalid_request"),
        (text.replace("A. Person", "\\u0000").encode(), JSON, 422, "invalid_request"),
        (text.replace('"A. Person"', "NaN").encode(), JSON, 422, "invalid_request"),
        (text.replace('"A. Person"', "1" * 5000).encode(), JSON, 422, "invalid_request"),
        (b"[]", JSON, 422, "invalid_request"),
        (b" " * 70_000, JSON, 413, "body_too_large"),
        (text.encode(), {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        (text.encode(), {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        (text.encode(), {}, 415, "unsupported_media_type"),
    ]
    for content, headers, status, code in cases:
        answer = await http.post("/v1/consents", content=content, headers=headers)
        check_problem(answer, status, code, answer.json()["field"])
    assert (await http.get("/v1/consents")).json()["consents"] == []


async def test_a_body_that_says_how_large_it_is_is_refused_before_it_is_sent(stack: RunningStack, acme: Tenant) -> None:
    """413 comes while the client has sent nothing of it; one without an end is cut off at its bound."""
    head = f"POST /v1/consents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {acme.key}\r\n"
    head += "Content-Type: application/json\r\n"
    for rest in ("Content-Length: 9999999\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n" + "2000\r\n" + " " * 8192):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(stack.relay_url.rsplit(":", 1)[1]))
        writer.write((head + rest).encode())
        for _ in range(10 if "chunked" in rest else 0):
            writer.write(("\r\n2000\r\n" + " " * 8192).encode())
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 10)
        assert b" 413 " in answer.split(b"\r\n")[0]
        writer.close()


@pytest.mark.parametrize("path", ["/v1/consents", "/openai/v1/audio/speech", "/api/offer"])
async def test_a_request_of_two_lengths_ends_its_connection(stack: RunningStack, acme: Tenant, path: str) -> None:
    """At every door: what follows in the second one's place is never read as another request."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {acme.key}\r\nContent-Type: application/json\r\n"
    lengths = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", int(stack.relay_url.rsplit(":", 1)[1]))
    writer.write((head + lengths + "GET /v1/voices HTTP/1.1\r\nHost: x\r\n\r\n").encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    writer.close()


async def test_a_body_that_does_not_arrive_is_waited_for_no_longer_than_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who sends half a body and stops, or goes away, is let go with 408."""
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.05)
    started = iter([{"type": "http.request", "body": b"half", "more_body": True}])

    async def stall() -> Any:
        for message in started:
            return message
        return await asyncio.Event().wait()

    async def leave() -> Any:
        return {"type": "http.disconnect"}

    for receive in (stall, leave):
        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        with pytest.raises(RequestRefused) as caught:
            async for _ in bodies.receive(request, 100, RequestRefused(413, "body_too_large", "")):
                pass
        assert (caught.value.status, caught.value.code) == (408, "request_timeout")


async def test_injections_are_texts_like_any_other(http: Http) -> None:
    """What looks like SQL, a header or a path is kept and given back as it was, or is not found."""
    names = [
        "'; DROP TABLE voices; --",
        'x" OR ""="',
        "%s %(name)s {0}",
        "../../etc/passwd",
        "<script>alert(1)</script>",
    ]
    for name in names:
        made = await http.post(
            "/v1/consents", json={**CONSENT, "signer": name, "statement": f"{name}\r\nSet-Cookie: a=b"}
        )
        assert "set-cookie" not in made.headers
        shown = (await http.get(made.headers["location"])).json()
        assert shown["signer"] == name
        assert (await http.get("/v1/voices", params={"name": name})).json()["voices"] == []
        problem = await http.get("/v1/admin/audit", params={"object": name})
        assert problem.status_code in (200, 422)
    answer = await http.get("/v1/voices/a%0d%0aSet-Cookie:%20a=b")
    check_problem(answer, 404, "unknown_voice", "voice")
    assert "set-cookie" not in answer.headers
    answer = await http.post("/v1/consents", json=CONSENT, headers=[(b"idempotency-key", b"caf\xe9")])
    check_problem(answer, 422, "invalid_request", "Idempotency-Key")


async def test_another_tenants_ids_are_answered_like_unknown_ones(
    http: Http, stranger: Http, acme: Tenant, make_voice: MakeVoice, enrol: Enrol
) -> None:
    """The same words, the same headers."""
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    consent = UUID((await http.get(f"/v1/voices/{voice}")).json()["consent"])
    deletion = (await http.delete(f"/v1/voices/{(await enrol())['id']}")).json()["deletion"]["id"]
    attempts: list[tuple[str, str, object]] = [
        ("GET", "/v1/voices/{}", voice),
        ("DELETE", "/v1/voices/{}", voice),
        ("POST", "/v1/voices/{}/disable", voice),
        ("GET", "/v1/voices/{}/export", voice),
        ("GET", "/v1/consents/{}", consent),
        ("POST", "/v1/consents/{}/withdraw", consent),
        ("GET", "/v1/deletions/{}", deletion),
        ("DELETE", "/v1/admin/keys/{}", acme.key_id),
    ]
    for method, path, foreign in attempts:
        unknown = str(uuid4())
        theirs = await stranger.request(method, path.format(foreign))
        nobodys = await stranger.request(method, path.format(unknown))
        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.text.replace(str(foreign), unknown) == nobodys.text
        assert set(theirs.headers) == set(nobodys.headers)
    form = {"name": "x", "consent": str(consent)}
    stolen = await stranger.post("/v1/voices", data=form, files={"recording": RECORDING})
    check_problem(stolen, 404, "unknown_consent", "consent")


async def test_a_recording_touches_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large it may be: what a form brings stays in memory until it is sealed."""
    limit = 3 << 20
    head = b'--x\r\nContent-Disposition: form-data; name="recording"; filename="a"\r\n\r\n'
    body = head + bytes(limit) + b"\r\n--x--\r\n"
    parts = iter([body[start : start + 65536] for start in range(0, len(body), 65536)])

    async def receive() -> Any:
        part = next(parts, b"")
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a file was made")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    form = await read_form(Request({"type": "http", "method": "POST", "headers": headers}, receive), limit)
    assert form.recording == bytes(limit)
