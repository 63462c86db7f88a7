"""The duties of upkeep as tasks of Celery; beat sends them by the periods in `storage.cold_jobs`.

Each is safe to do at any time, twice at once, and again after it was killed, so its message is acknowledged first: what
it leaves undone is there at the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property

import structlog
from celery import Celery

from storage.cold_jobs import Duty
from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.encryption.providers import KeyProvider
from storage.encryption.providers.choice import open_provider
from storage.errors import ServerUnavailable
from storage.redis import connect
from storage.settings import Settings
from worker.upkeep.checkpoints import sign_heads
from worker.upkeep.endings import delete_unused, expire_consents
from worker.upkeep.lost_work import send_again
from worker.upkeep.roll_up import roll_up
from worker.upkeep.rounds import Tools
from worker.upkeep.tidying import tidy_up

log = structlog.get_logger()

WORK: Mapping[Duty, Callable[[Tools], Awaitable[int]]] = {
    Duty.ROLL_UP: roll_up,
    Duty.RETENTION: delete_unused,
    Duty.CONSENT_EXPIRY: expire_consents,
    Duty.LOST_WORK: send_again,
    Duty.TIDYING: tidy_up,
    Duty.CHECKPOINTS: sign_heads,
}

_CONNECTIONS = 4


class Upkeep:
    """What the duties need, made once a process."""

    def __init__(self, settings: Settings, celery: Celery) -> None:
        self._settings = settings
        self._celery = celery

    @cached_property
    def _provider(self) -> KeyProvider:
        return open_provider(self._settings)

    async def do(self, duty: Duty) -> int:
        """One round of a duty; how much there was to do, 0 when a server is away."""
        database = Database.for_service(self._settings, pool_size=_CONNECTIONS)
        redis = connect(self._settings.redis_url, connections=_CONNECTIONS)
        try:
            return await WORK[duty](Tools(database, redis, Keyring(self._provider), self._celery))
        except ServerUnavailable as error:
            log.warning("upkeep put off", duty=duty.name.lower(), reason=str(error))
            return 0
        finally:
            await redis.aclose()
            await database.close()


def register_duties(app: Celery, settings: Settings) -> None:
    """Make the duties known to a Celery application under their names."""
    upkeep = Upkeep(settings, app)
    for duty in Duty:
        app.task(_make_task(upkeep, duty), name=duty.value, acks_late=False)


def _make_task(upkeep: Upkeep, duty: Duty) -> Callable[[], None]:
    def do() -> None:
        done = asyncio.run(upkeep.do(duty))
        if done:
            log.info("upkeep", duty=duty.name.lower(), done=done)

    return do
