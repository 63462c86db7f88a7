"""A running stack for all the tests of a module, and a tenant with a voice for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import httpx2
import pytest

from storage.settings import Settings
from tests.conftest import MakeTenant, MakeVoice, RunningStack, Tenant
from tests.relay.sharing import Shared, share
from tests.system.conftest import SPEECH, embed
from timbrelay.stack.servers import Servers

Http = httpx2.AsyncClient
PATH = "/openai/v1/audio/speech"


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """A relay and a worker."""
    folder = tmp_path_factory.mktemp("shared")
    with share(servers, clean_variables, folder, lambda start: start(only=SPEECH)) as lent:
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
    """The tenant's client of the dialect."""
    async with knock(stack, acme.tenant) as client:
        yield client


@asynccontextmanager
async def knock(stack: RunningStack, tenant: Tenant) -> AsyncIterator[Http]:
    """A tenant's client."""
    headers = {"Authorization": f"Bearer {tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as client:
        yield client


def count_contexts(stack: RunningStack) -> float:
    """How many contexts are open, as the relay says."""
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("timbrelay_contexts ")))
