"""Who may come in where, and how every refusal looks: read from the OpenAPI document, tried at every route of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from relay.api.document import make_document
from relay.api.problems import TITLES
from relay.app import make_api
from storage.database import Database
from storage.states import TenantState
from storage.tenancy.api_keys import Scope
from storage.tenancy.tenants import change_tenant
from tests.conftest import MakeTenant, RunningStack, StartStack, Tenant
from tests.relay.api.conftest import Grant, Http, check_problem, knock, start_relay

DOCUMENT = make_document(make_api(None))
METHODS = {"get", "post", "put", "patch", "delete"}
RIGHTS = ("/v1/consents/{consent}/withdraw",)
"""What ends something although its method does not say so."""


def _operations() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            assert method in METHODS
            named = {parameter["name"]: str(uuid4()) for parameter in operation.get("parameters", [])}
            yield method.upper(), path, path.format(**named), operation


def _scopes(operation: dict[str, Any]) -> set[str]:
    return {alternative["key"][0] for alternative in operation["security"]}


OPERATIONS = tuple((method, path, filled, _scopes(operation)) for method, path, filled, operation in _operations())
"""Method, path, the same with ids of nothing in it, and the scopes of which one is needed."""


def test_the_document_in_docs_is_current() -> None:
    """docs/openapi.json is what `python -m relay.api` prints."""
    kept = Path(__file__).parents[3] / "docs" / "openapi.json"
    assert json.loads(kept.read_text()) == DOCUMENT, "run: python -m relay.api > docs/openapi.json"


def test_every_reference_in_the_document_leads_somewhere() -> None:
    """OpenAPI 3.1, and whatever is used in it is described in it."""
    assert DOCUMENT["openapi"].startswith("3.1")
    text = json.dumps(DOCUMENT)
    assert "$defs" not in text
    for reference in {part.split('"')[0] for part in text.split('"$ref": "#/')[1:]}:
        found: Any = DOCUMENT
        for name in reference.split("/"):
            found = found[name]
        assert found


async def test_the_document_and_the_titles_take_no_key(stack: RunningStack) -> None:
    """Whoever is refused can find out why, and what there is."""
    async with knock(stack, None) as client:
        served = await client.get("/v1/openapi.json")
        assert served.json() == DOCUMENT
        for code, title in TITLES.items():
            assert (await client.get(f"/v1/problems/{code}")).json() == {"code": code, "title": title}
        check_problem(await client.get("/v1/problems/other"), 404, "unknown_problem", "problem")


async def test_every_route_wants_a_key_with_one_of_its_scopes(
    start_stack: StartStack, make_tenant: MakeTenant, operator_key: str
) -> None:
    """Without a key 401; with one of another scope 403; with one of its own neither, whatever else is wrong."""
    stack = start_relay(start_stack, max_wrong_keys_per_minute=1000)
    keys = {scope: (await make_tenant("acme", scopes=(scope,))).key for scope in ("speak", "enrol", "admin")}
    keys["operator"] = operator_key
    open_doors = 0
    for method, _, path, scopes in OPERATIONS:
        assert scopes <= {str(scope) for scope in Scope}
        async with knock(stack, None) as nobody:
            answer = await nobody.request(method, path)
        if not scopes:
            open_doors += 1
            assert answer.status_code in (200, 404)
            continue
        check_problem(answer, 401, "unauthorized", "Authorization")
        assert answer.headers["www-authenticate"] == "Bearer"
        for scope, key in keys.items():
            async with knock(stack, key) as client:
                answer = await client.request(method, path)
            if scope in scopes:
                assert answer.status_code not in (401, 403, 500), (method, path, scope, answer.text)
            else:
                check_problem(answer, 403, "insufficient_scope", "Authorization")
    assert open_doors == 3


async def test_of_a_tenant_that_is_being_deleted_nothing_is_made_or_changed(
    stack: RunningStack, acme: Tenant, database: Database
) -> None:
    """Its administrator looks on, and may end more of it; keys of other scopes may nothing."""
    async with database.transaction(operator=True) as connection:
        await change_tenant(connection, acme.id, state=TenantState.DELETING)
    async with knock(stack, acme.key) as client:
        for method, template, path, operation in _operations():
            if "admin" not in _scopes(operation):
                continue
            answer = await client.request(method, path)
            if method in ("GET", "DELETE") or template in RIGHTS:
                assert answer.status_code in (200, 404, 422), answer.text
            else:
                check_problem(answer, 409, "wrong_state")
            assert str(answer.status_code) in operation["responses"]


async def test_a_key_that_is_none_opens_nothing(stack: RunningStack) -> None:
    """Unknown, empty, endless or in another scheme."""
    keys = ["Bearer tr_wrong", "Bearer", "Bearer tr_" + "x" * 500, "Bearer tr_é", "Basic dXNlcg==", "tr_wrong"]
    async with knock(stack, None) as client:
        for key in keys:
            answer = await client.get("/v1/voices", headers=[(b"authorization", key.encode())])
            check_problem(answer, 401, "unauthorized", "Authorization")


async def test_what_is_not_there_is_told_in_the_same_form(http: Http) -> None:
    """Paths, methods and media types; 405 names every method of the path, and HEAD is GET without a body."""
    for path in ("/", "/v2", "/v1/voices/", "/v1/docs", "/docs", "/openapi.json", f"/v1/voices/{uuid4()}/x"):
        check_problem(await http.get(path), 404, "not_found")
    answer = await http.delete("/v1/voices")
    check_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert (await http.request("BREW", "/v1/voices")).status_code == 405
    got, head = await http.get("/v1/voices"), await http.head("/v1/voices")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == got.headers["etag"]
    assert head.headers["content-length"] == got.headers["content-length"]


async def test_too_many_requests_and_wrong_keys_are_told_when_to_come_back(
    start_stack: StartStack, make_tenant: MakeTenant, acme: Tenant
) -> None:
    """429 with `Retry-After`, for an address that tries keys out, whatever key it brings then."""
    stack = start_relay(start_stack, max_wrong_keys_per_minute=3)
    async with knock(stack, "tr_wrong") as client:
        answers = [await client.get("/v1/voices") for _ in range(5)]
    assert [answer.status_code for answer in answers[:3]] == [401] * 3
    problem = check_problem(answers[-1], 429, "rate_limited")
    assert problem["retryable"] and problem["retry_after_ms"] > 0
    assert int(answers[-1].headers["retry-after"]) >= 1


async def test_problems_do_not_repeat_what_was_sent(http: Http, grant: Grant) -> None:
    """A refused value may be a person's name: the answer names the field alone."""
    answer = await http.post("/v1/consents", json={"signer": "A. Person" * 50, "statement": 5, "purpose": {}})
    assert "Person" not in answer.text
    answer = await http.get("/v1/voices", params={"state": "Person", "limit": "Person"})
    assert "Person" not in answer.text
