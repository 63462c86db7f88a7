"""The OpenAPI document against the running relay: whatever the document allows, and much that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from relay.api.document import make_document
from relay.app import make_api
from storage.database import Database
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import change_tenant
from tests.conftest import MakeTenant, MakeVoice, RunningStack
from tests.relay.api.conftest import EMBEDDING, Enrol, Http

EXAMPLES = 12
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
MANY = Limits(requests_per_minute=1_000_000, uploads_per_minute=100_000, voices=10_000_000, consents=20_000_000)


@dataclass
class Attack:
    """One run over all operations, with keys of all scopes and ids that lead somewhere."""

    url: str
    tenant_key: str
    operator_key: str
    known: dict[str, str]
    """By the parameter's name: something that is there."""
    statuses: set[int] = field(default_factory=set)
    calls: int = 0

    def run(self, operation: Any) -> None:
        """EXAMPLES requests that fit the document, and as many that do not, where there can be such."""
        self._try(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), operation)
        with suppress(Unsatisfiable):
            self._try(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), operation)

    def _try(self, strategy: Any, operation: Any) -> None:
        @seed(20261130)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy, real=st.booleans())
        def attack(case: Case[Any], real: bool) -> None:
            if real:
                for name in set(case.path_parameters or {}) & set(self.known):
                    case.path_parameters[name] = self.known[name]
            key = self.operator_key if "/operator/" in operation.path else self.tenant_key
            response = case.call(base_url=self.url, session=session, headers={"Authorization": f"Bearer {key}"})
            self.statuses.add(response.status_code)
            self.calls += 1
            case.validate_response(response, checks=CHECKS)

        with requests.Session() as session:
            session.trust_env = False
            attack()


async def test_the_relay_does_what_its_document_says(
    stack: RunningStack,
    http: Http,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
    enrol: Enrol,
    operator_key: str,
    database: Database,
) -> None:
    """No server error, and no status, header, content type or body that the document does not have."""
    acme, victim = await make_tenant("acme"), await make_tenant("victim")
    for tenant in (acme, victim):
        async with database.transaction(operator=True) as connection:
            await change_tenant(connection, tenant.id, limits=MANY)
    voice = await make_voice(acme.id, embedding=EMBEDDING)
    deletion = (await http.delete(f"/v1/voices/{(await enrol())['id']}")).json()["deletion"]["id"]
    known = {
        "voice": str(voice),
        "consent": (await http.get(f"/v1/voices/{voice}")).json()["consent"],
        "deletion": deletion,
        "key": str((await make_tenant("acme", scopes=("speak",))).key_id),
        "tenant": str(victim.id),
        "code": "not_found",
    }
    attack = Attack(stack.relay_url, acme.key, operator_key, known)
    await asyncio.to_thread(_run, attack)
    assert {200, 201, 204, 404, 422} <= attack.statuses, attack.statuses
    assert attack.calls > 38 * EXAMPLES
    assert (await http.get("/v1/voices")).status_code == 200
    assert "Traceback" not in stack.log.read_text()


def _run(attack: Attack) -> None:
    failures = []
    for operation in _operations():
        try:
            attack.run(operation)
        except (FailureGroup, Failure) as failure:
            failures.append(f"{operation.label}: {failure}")
    assert not failures, "\n".join(failures)


def _operations() -> Iterator[Any]:
    """Those that destroy come last. Without the security schemes: that a request needs a key is tested elsewhere."""
    document = make_document(make_api(None))
    del document["components"]["securitySchemes"]
    for path in document["paths"].values():
        for operation in path.values():
            del operation["security"]
    schema = schemathesis.openapi.from_dict(document)
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    yield from sorted(operations, key=lambda operation: operation.method.lower() == "delete")
