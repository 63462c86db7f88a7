"""A running stack for all the tests of a module, and a tenant with a voice for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from storage.settings import Settings
from tests.conftest import MakeTenant, MakeVoice, RunningStack, Tenant
from tests.relay.sharing import Shared, share
from tests.system.conftest import SPEECH, embed
from timbrelay.stack.servers import Servers


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, Any]:
    """What a folder's stacks have other than the settings' defaults."""
    return {}


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest,
    servers: Servers,
    clean_variables: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    stack_settings: dict[str, Any],
) -> Iterator[Shared]:
    """A relay and a worker; with `ENROLS = True` in the module Celery too."""
    only = None if getattr(request.module, "ENROLS", False) else SPEECH
    folder = tmp_path_factory.mktemp("shared")
    with share(servers, clean_variables, folder, lambda start: start(only=only, **stack_settings)) as lent:
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
