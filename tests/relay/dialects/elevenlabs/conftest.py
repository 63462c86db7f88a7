"""Faces that a test drives; a running stack for all the tests of a module, and a tenant with a voice for each."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import uuid4

import httpx2
import pytest

from storage.settings import Settings
from tests.conftest import MakeTenant, MakeVoice, RunningStack, Tenant
from tests.relay.dialects.elevenlabs.desk import Desk, open_multi, open_stream
from tests.relay.sharing import Shared, share
from tests.system.conftest import SPEECH
from tests.system.conftest import embed as embed_sample
from timbrelay.stack.servers import Servers

Http = httpx2.AsyncClient
embed = functools.cache(embed_sample)
MAX_RUN_AHEAD_MS = 600_000
"""So that a minute of speech does not take one."""


@pytest.fixture
def multi() -> Desk:
    """A `multi-stream-input` on which nothing was said yet."""
    return open_multi()


@pytest.fixture
def stream() -> Desk:
    """A `stream-input` on which nothing was said yet."""
    return open_stream()


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest,
    servers: Servers,
    clean_variables: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shared]:
    """A relay and a worker; with `ENROLS = True` in the module Celery too."""
    only = None if getattr(request.module, "ENROLS", False) else SPEECH
    folder = tmp_path_factory.mktemp("shared")
    with share(servers, clean_variables, folder, lambda start: start(only=only, run_ahead_ms=MAX_RUN_AHEAD_MS)) as lent:
        yield lent


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """The test's own, or in a module that says `ONE_STACK = True`, those of its stack, with all its tests' tenants."""
    if not getattr(request.module, "ONE_STACK", False):
        own: Settings = request.getfixturevalue("settings")
        return own
    shared: Shared = request.getfixturevalue("shared")
    return shared.settings


@pytest.fixture
def stack(shared: Shared) -> RunningStack:
    """The module's."""
    return shared.stack


@dataclass(frozen=True, slots=True)
class Speaking:
    """A tenant with a voice that is ready."""

    tenant: Tenant
    voice: str


@pytest.fixture
async def acme(make_tenant: MakeTenant, make_voice: MakeVoice) -> Speaking:
    """A tenant with a key of all scopes, and a voice."""
    tenant = await make_tenant(f"acme {uuid4()}")
    return Speaking(tenant, str(await make_voice(tenant.id, embedding=embed("low"), name="low")))


@pytest.fixture
async def http(stack: RunningStack, acme: Speaking) -> AsyncIterator[Http]:
    """The tenant's client, with the dialect's base URL."""
    headers = {"xi-api-key": acme.tenant.key}
    async with httpx2.AsyncClient(base_url=f"{stack.relay_url}/elevenlabs", headers=headers, timeout=30) as client:
        yield client
