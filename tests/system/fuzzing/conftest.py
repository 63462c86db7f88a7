"""One relay and one worker for all that is done to them here; two tenants, each with a voice.

`FUZZ_ROUNDS=50 FUZZ_SEED=1000 pytest tests/system/fuzzing` does more of it, with other seeds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from storage.database import Database
from storage.settings import Settings
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import change_tenant
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack
from tests.relay.sharing import Shared, share
from tests.system.conftest import SPEECH, embed
from tests.system.doors import Ask, hear_native
from tests.system.fuzzing.texts import CANARY
from tests.system.fuzzing.vitals import Vitals
from timbrelay.stack.servers import Servers

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "1"))
FIRST_SEED = int(os.environ.get("FUZZ_SEED", "1"))


def start_patient(start_stack: StartStack) -> RunningStack:
    """With short patience, so that whoever is waited for is not waited for long."""
    return start_stack(
        only=SPEECH,
        # As fast as can be, whoever listens at whatever speed: what is not read has to fill the buffers.
        run_ahead_ms=600_000,
        send_timeout_s=1.0,
        idle_timeout_s=3.0,
        resume_window_s=1.0,
        webrtc_loopback=True,
        webrtc_peers=8,
        max_wrong_keys_per_minute=100_000,
    )


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    with share(servers, clean_variables, tmp_path_factory.mktemp("fuzzing"), start_patient) as lent:
        yield lent


@pytest.fixture
def settings(shared: Shared) -> Settings:
    """Those of the one relay."""
    shared.empty()
    return shared.settings


@dataclass(frozen=True, slots=True)
class Scene:
    """Who attacks, and whom he must not reach."""

    url: str
    key: str
    voice: str
    foreign: str
    """A voice of somebody else."""
    vitals: Vitals
    expected: dict[Ask, bytes]
    """What both tenants heard before."""

    async def check(self) -> None:
        """Nothing is left of an attack, and both tenants are served as before."""
        await self.vitals.settle()
        self.vitals.check()
        await self.vitals.check_doors(self.expected)
        await self.vitals.settle()


@pytest.fixture
async def scene(
    shared: Shared, make_tenant: MakeTenant, make_voice: MakeVoice, database: Database
) -> AsyncIterator[Scene]:
    """The relay before an attack; afterwards it is looked at."""
    asks = []
    for name, sample in (("acme", "low"), ("other", "high")):
        tenant = await make_tenant(name)
        await _let_ask_often(database, tenant.id)
        voice = str(await make_voice(tenant.id, embedding=embed(sample)))
        asks.append(Ask(shared.stack.relay_url, tenant.key, voice, f"{CANARY} fine."))
    expected = {ask: await hear_native(ask) for ask in asks}
    vitals = Vitals(shared.stack, [ask.key for ask in asks])
    attacker, bystander = asks
    made = Scene(attacker.url, attacker.key, attacker.voice, bystander.voice, vitals, expected)
    yield made
    await made.check()


async def _let_ask_often(database: Database, tenant: UUID) -> None:
    async with database.transaction(operator=True) as connection:
        await change_tenant(connection, tenant, limits=Limits(requests_per_minute=1_000_000, contexts=64))
