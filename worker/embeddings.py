"""Embeddings in the clear, for as short and as few as speaking needs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from storage.database import Database, bounded
from storage.encryption.keyring import Keyring
from storage.streams.broadcasts import EMBEDDING_TTL_S
from storage.voices.versions import load_embedding
from worker.errors import VoiceUnavailable

CAPACITY = 256
TTL_S = float(EMBEDDING_TTL_S)

Key = tuple[UUID, UUID, int]


@dataclass(slots=True, eq=False)
class _Lookup:
    """A voice that is being fetched: what is heard of it meanwhile counts for what is found."""

    voice: UUID
    forgotten: bool = False
    stale: bool = False


class EmbeddingCache:
    """The embeddings of the voices that were spoken with last, by tenant, voice and version."""

    def __init__(self, database: Database, keyring: Keyring, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, NDArray[np.float32]]] = OrderedDict()
        self._lookups: set[_Lookup] = set()

    async def get(self, tenant: UUID, voice: UUID, version: int) -> NDArray[np.float32]:
        """float32[256]; raises VoiceUnavailable, DecryptionError or ServerUnavailable."""
        key = (tenant, voice, version)
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._clock():
            self._kept.move_to_end(key)
            return kept[1]
        lookup = _Lookup(voice)
        self._lookups.add(lookup)
        try:
            raw = await bounded(self._load(key))
        finally:
            self._lookups.discard(lookup)
        if raw is None or lookup.forgotten:
            self._kept.pop(key, None)
            raise VoiceUnavailable(str(voice))
        embedding = np.frombuffer(raw, "<f4").astype(np.float32)
        if not lookup.stale:
            self._keep(key, embedding)
        return embedding

    def clear(self) -> None:
        """Drop everything: with Redis' data the tombstones of silenced voices may be lost."""
        self._kept.clear()
        for lookup in self._lookups:
            lookup.stale = True

    def forget(self, voice: UUID) -> None:
        """Drop every version of a voice, also what is being fetched just now."""
        for key in [key for key in self._kept if key[1] == voice]:
            del self._kept[key]
        for lookup in self._lookups:
            lookup.forgotten = lookup.forgotten or lookup.voice == voice

    async def _load(self, key: Key) -> bytes | None:
        async with self._database.transaction(tenant=key[0]) as connection:
            return await load_embedding(connection, self._keyring, *key)

    def _keep(self, key: Key, embedding: NDArray[np.float32]) -> None:
        self._kept[key] = (self._clock() + TTL_S, embedding)
        while len(self._kept) > CAPACITY:
            self._kept.popitem(last=False)
