"""What a context begins with: a voice that may speak, and the keyed hash of what it is going to say."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from relay.errors import ServiceUnavailable, UnknownVoice
from relay.speaking.tally import TextHash
from storage.database import Database, bounded
from storage.encryption.keyring import Keyring
from storage.encryption.secrets import SecretBytes
from storage.errors import StorageError
from storage.evidence.audit import audit_key
from storage.voices.voices import Speaker, find_speaker

log = structlog.get_logger()

KEY_TTL_S = 300.0
KEY_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class Role:
    """Who speaks, and the hash of the words."""

    speaker: Speaker
    text_hash: TextHash


class Casting:
    """Finds voices, in one transaction with the tenant's audit key where that is not kept: for some minutes it is."""

    def __init__(self, database: Database, keyring: Keyring, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._kept: OrderedDict[UUID, tuple[float, SecretBytes]] = OrderedDict()

    async def cast(self, tenant: UUID, voice: str) -> Role:
        """A role for the tenant's voice with this id or alias; raises UnknownVoice or ServiceUnavailable."""
        try:
            return await bounded(self._cast(tenant, voice))
        except StorageError as error:
            log.warning("a context cannot begin", reason=str(error))
            raise ServiceUnavailable from error

    async def _cast(self, tenant: UUID, voice: str) -> Role:
        async with self._database.transaction(tenant=tenant) as connection:
            speaker = await find_speaker(connection, tenant, voice)
            if speaker is None:
                raise UnknownVoice(voice)
            key = await self._find_key(connection, tenant)
        # Fed as the text comes, it ends as `storage.evidence.audit.hash_text` of the whole.
        return Role(speaker, hmac.new(key.reveal(), digestmod="sha256"))

    async def _find_key(self, connection: AsyncConnection, tenant: UUID) -> SecretBytes:
        self._forget_old()
        if tenant in self._kept:
            return self._kept[tenant][1]
        key = await audit_key(connection, self._keyring, tenant)
        self._kept[tenant] = (self._clock() + KEY_TTL_S, key)
        return key

    def _forget_old(self) -> None:
        """Keys are kept in the order in which they end; one that has ended is not only unused, but gone."""
        now = self._clock()
        while self._kept and (len(self._kept) >= KEY_CAPACITY or next(iter(self._kept.values()))[0] <= now):
            self._kept.popitem(last=False)
