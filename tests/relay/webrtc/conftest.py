"""One relay with a worker for the tests of a module, and a client of WebRTC that is aiortc's other side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import UUID

import httpx2
import pytest
from pydantic import SecretStr

from storage.settings import Settings
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack, Tenant
from tests.relay.conftest import EMBEDDING
from tests.relay.sharing import Shared, share
from timbrelay.stack.servers import Servers

ORIGIN = "https://app.example.com"
PEERS = 4
"""For each tenant; there are places for two."""
OWN_SERVERS = [["stun:stun.example.com:3478"], ["turn:turn.example.com:3478?transport=udp", "turns:turn.example.com"]]
SECRET = "shared with the TURN server"
"""Nobody of ours asks these servers: peers of this relay offer what they have themselves."""


def start_speaking(start_stack: StartStack) -> RunningStack:
    """A relay that offers 127.0.0.1, which is the only address of some machines, and a worker."""
    return start_stack(
        only=("relay", "worker"),
        webrtc_loopback=True,
        webrtc_peers=2 * PEERS,
        allowed_origins=ORIGIN,
        stun_urls=OWN_SERVERS[0][0],
        turn_urls=", ".join(OWN_SERVERS[1]),
        turn_secret=SecretStr(SECRET),
    )


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """The one relay of a module."""
    with share(servers, clean_variables, tmp_path_factory.mktemp("shared"), start_speaking) as lent:
        yield lent


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """Those of the module's relay, without any tenant; the test's own in a module that says `OWN_RELAY = True`."""
    if getattr(request.module, "OWN_RELAY", False):
        own: Settings = request.getfixturevalue("settings")
        return own
    shared: Shared = request.getfixturevalue("shared")
    shared.empty()
    return shared.settings


@pytest.fixture
def stack(shared: Shared, settings: Settings) -> RunningStack:
    """The module's relay."""
    return shared.stack


@dataclass(frozen=True, slots=True)
class Speaker:
    """A tenant with a voice that is ready."""

    tenant: Tenant
    voice: UUID


@pytest.fixture
async def speaker(make_tenant: MakeTenant, make_voice: MakeVoice) -> Speaker:
    """Who speaks in the tests."""
    tenant = await make_tenant("acme")
    return Speaker(tenant, await make_voice(tenant.id, embedding=EMBEDDING))


@pytest.fixture
async def http(stack: RunningStack, speaker: Speaker) -> AsyncIterator[httpx2.AsyncClient]:
    """The tenant's client."""
    headers = {"Authorization": f"Bearer {speaker.tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as client:
        yield client
