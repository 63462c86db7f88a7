"""What the tests of enrolment share: a running Celery with short limits, and the tables as the tenant sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url

from storage.cold_jobs import make_celery, send_enrolment
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.evidence.audit import read_audit
from storage.settings import Settings
from storage.states import VersionState, VoiceState
from storage.voices.records import Version, Voice
from storage.voices.versions import load_embedding
from storage.voices.voices import find_voice
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack, wait_until
from worker.enrolment.stages import Stage

LIMIT_S = 6.0
"""The time limit of a task here: what was killed is back after nine seconds instead of 45."""
DEADLINE_S = 90.0
MOST_VOICES = 8
UPLOAD = (Path(__file__).resolve().parents[2] / "samples" / "reference-low.wav").read_bytes()


@dataclass(slots=True)
class Enrolling:
    """A running Celery, a tenant, and the tables as that tenant sees them."""

    stack: RunningStack
    settings: Settings
    database: Database
    keyring: Keyring
    tenant: UUID
    make_voice: Callable[..., Awaitable[UUID]]
    rows: psycopg.Connection[tuple[Any, ...]]

    async def begin(self, upload: bytes = UPLOAD) -> UUID:
        """A pending voice whose enrolment was asked for."""
        voice: UUID = await self.make_voice(self.tenant, upload=upload)
        self.send(voice)
        return voice

    def send(self, voice: UUID, version: int = 1) -> None:
        send_enrolment(make_celery(self.settings), self.tenant, voice, version)

    def reach(self, voice: UUID, stage: Stage, version: int = 1) -> bool:
        """Returns when the version's enrolment is in that stage; False when it had passed it unseen."""
        query = "SELECT state, stage FROM voice_versions WHERE voice_id = %s AND version = %s"
        found: list[str] = []

        def there() -> bool:
            state, now = self.rows.execute(query, (voice, version)).fetchone() or ("gone", "")
            found[:] = [now]
            return bool(now == stage or state != VersionState.PENDING)

        wait_until(there, DEADLINE_S)
        return found == [stage]

    async def begin_until(self, stage: Stage) -> UUID:
        """A voice whose enrolment is in that stage at this moment."""
        for _ in range(MOST_VOICES):
            voice = await self.begin()
            if self.reach(voice, stage):
                return voice
        raise AssertionError(f"of {MOST_VOICES} enrolments none was seen in the stage {stage}")

    async def find(self, voice: UUID) -> Voice | None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            return await find_voice(connection, self.tenant, voice)

    async def end(self, voice: UUID) -> tuple[Voice, Version]:
        """The voice when its newest version waits no more."""
        for _ in range(int(DEADLINE_S * 20)):
            found = await self.find(voice)
            assert found is not None and found.latest is not None
            if found.latest.state is not VersionState.PENDING:
                return found, found.latest
            await asyncio.sleep(0.05)
        raise AssertionError(f"not enrolled in {DEADLINE_S} s: {found}\n{self.stack.log.read_text()[-4000:]}")

    async def count(self, action: str, voice: UUID) -> int:
        """How often that stands in the audit log."""
        async with self.database.transaction(tenant=self.tenant) as connection:
            return len(await read_audit(connection, self.tenant, action=action, object_id=str(voice)))

    async def embedding(self, voice: UUID, version: int = 1) -> bytes | None:
        async with self.database.transaction(tenant=self.tenant) as connection:
            return await load_embedding(connection, self.keyring, self.tenant, voice, version)

    @contextlib.contextmanager
    def holding(self, voice: UUID) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Nobody else changes the voice meanwhile: its enrolment comes as far as STORING and stays there."""
        with open_as(self.settings, self.tenant) as other, other.transaction():
            other.execute("SELECT 1 FROM voices WHERE id = %s FOR UPDATE", (voice,))
            yield other

    async def check_enrolled_once(self, voice: UUID) -> None:
        """Ready, on record once, with nothing left of the way there."""
        found, latest = await self.end(voice)
        assert (found.state, found.version, latest.state) == (VoiceState.READY, 1, VersionState.READY), latest
        assert await self.embedding(voice) is not None
        assert await self.count("voice.enrolled", voice) == 1
        query = "SELECT upload, claimed_until, error_code FROM voice_versions WHERE voice_id = %s"
        assert self.rows.execute(query, (voice,)).fetchall() == [(None, None, None)]


def open_as(settings: Settings, tenant: UUID) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that stays the tenant's."""
    url = make_url(settings.owner_url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg.connect(url, autocommit=True)
    query = "SELECT set_config('role', %s, false), set_config('app.tenant', %s, false)"
    connection.execute(query, (settings.service_role, str(tenant)))
    return connection


MakeEnrolling = Callable[..., Awaitable[Enrolling]]


@pytest.fixture
def start_enrolling(
    settings: Settings,
    database: Database,
    keyring: Keyring,
    make_tenant: MakeTenant,
    make_voice: MakeVoice,
    start_stack: StartStack,
) -> Iterator[MakeEnrolling]:
    """`await start_enrolling()`: a tenant and a Celery with short limits."""
    with contextlib.ExitStack() as life:

        async def start(limit_s: float = LIMIT_S) -> Enrolling:
            tenant = (await make_tenant("acme")).id
            rows = life.enter_context(open_as(settings, tenant))
            stack = start_stack(only=("celery",), task_limit_s=limit_s)
            return Enrolling(stack, settings, database, keyring, tenant, make_voice, rows)

        yield start


def list_below(parent: int) -> dict[int, str]:
    """The command lines of all processes below one, those in sessions of their own included."""
    found: dict[int, str] = {}
    below = {parent}
    for entry in sorted(Path("/proc").iterdir(), key=lambda entry: entry.name.zfill(10)):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if parent_of(pid) in below:
                below.add(pid)
                found[pid] = (entry / "cmdline").read_text()
    return found


def parent_of(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def find_decoder(parent: int) -> int:
    """The process that decodes, 0 when none does."""
    return next((pid for pid, command in list_below(parent).items() if "worker.enrolment.decoder" in command), 0)


def is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
