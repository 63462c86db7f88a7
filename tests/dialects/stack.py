"""One real stack for all client tests: two tenants with voices, a plain relay and one with TLS, noted in a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.settings import Settings
from storage.tenancy.api_keys import create_key
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import create_tenant
from storage.voices.aliases import set_alias
from storage.voices.consents import grant_consent
from storage.voices.versions import Enrolled, complete_enrolment
from storage.voices.voices import create_voice
from tests.certificates import Authority
from tests.conftest import STATEMENT, TENANT_SCOPES, TERMS, RunningStack, run_stacks
from tests.databases import lend_settings
from tests.system.conftest import SAMPLES, embed
from timbrelay.stack.servers import Servers

WRONG_KEY = "tr_" + "0" * 43
ALIAS = "alloy"
"""One of the names that Pipecat takes for OpenAI."""
MANY = 10_000
"""All clients of all families come from one address, many of them with a wrong key, and have one tenant."""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What the clients are given to work with."""

    key: str
    other_key: str
    voices: dict[str, str]
    foreign_voice: str
    consent: str
    alias: str


@dataclass(frozen=True, slots=True)
class ClientStack:
    """A stack that is ready for clients."""

    plain: RunningStack
    secure: RunningStack
    authority: Path
    """The certificate authority to trust, PEM."""
    coordinates: Path
    """The JSON file that tests/clients reads."""


@contextlib.contextmanager
def run_client_stack(servers: Servers, variables: dict[str, str], folder: Path) -> Iterator[ClientStack]:
    """Relay, worker and Celery, and a second relay that serves https and wss."""
    authority = Authority(folder, "authority")
    pair = authority.sign()
    with lend_settings(servers) as settings, run_stacks(servers, settings, variables, folder) as start:
        tenancy = asyncio.run(_furnish(settings))
        changed: dict[str, Any] = {"max_wrong_keys_per_minute": MANY, "webrtc_loopback": True}
        plain = start(**changed)
        tls = {"relay_tls_certificate": pair.certificate, "relay_tls_key": pair.key}
        secure = start(only=("relay",), **changed, **tls)
        note = {
            **asdict(tenancy),
            "http": plain.relay_url,
            "https": f"https://localhost:{secure.services.ports.relay}",
            "ca": str(authority.file),
            "wrong_key": WRONG_KEY,
            "recording": str(SAMPLES["low"]),
        }
        coordinates = folder / "stack.json"
        coordinates.write_text(json.dumps(note))
        yield ClientStack(plain, secure, authority.file, coordinates)


async def _furnish(settings: Settings) -> Tenancy:
    """Tenant A with two voices and an alias, tenant B with one voice."""
    database = Database.for_service(settings)
    keyring = Keyring.from_settings(settings)
    try:
        async with database.transaction(operator=True) as connection:
            limits = Limits(requests_per_minute=MANY, uploads_per_minute=MANY)
            tenants = [(await create_tenant(connection, name, limits=limits)).id for name in ("a", "b")]
            keys = [
                (await create_key(connection, tenant, name="clients", scopes=TENANT_SCOPES, expires_at=None))[1]
                for tenant in tenants
            ]
        async with database.transaction(tenant=tenants[0]) as connection:
            consent = await grant_consent(connection, keyring, tenants[0], TERMS, STATEMENT)
            own = {name: await _enrol(connection, keyring, tenants[0], consent.id, name) for name in SAMPLES}
            assert await set_alias(connection, tenants[0], ALIAS, own["low"])
        async with database.transaction(tenant=tenants[1]) as connection:
            given = await grant_consent(connection, keyring, tenants[1], TERMS, STATEMENT)
            foreign = await _enrol(connection, keyring, tenants[1], given.id, "high")
    finally:
        await database.close()
    key, other_key = (key.get_secret_value() for key in keys)
    voices = {name: str(voice) for name, voice in own.items()}
    return Tenancy(key, other_key, voices, str(foreign), str(consent.id), ALIAS)


async def _enrol(connection: AsyncConnection, keyring: Keyring, tenant: UUID, consent: UUID, sample: str) -> UUID:
    """A ready voice with the embedding of a sample, without the work of an enrolment."""
    voice = await create_voice(connection, keyring, tenant, name=sample, consent=consent, upload=b"upload")
    assert voice is not None
    content = Enrolled(b"recording", embed(sample), 6.0, 90, {})
    await complete_enrolment(connection, keyring, tenant, voice.id, 1, content)
    return voice.id
