"""Embeddings in the clear, for as short and as few as speaking needs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from storage.database import Database, bounded
from storage.encryption.keyring import RootKey
from storage.voices.voices import load_embedding
from worker.errors import VoiceUnavailable

CAPACITY = 256
TTL_S = 300.0
"""Half the life of a deleted voice's tombstone, so that none is spoken with after its tombstone is gone: even one that
was looked up while it was being deleted was looked up within seconds of its tombstone."""

Key = tuple[UUID, UUID, int]


class EmbeddingCache:
    """The embeddings of the voices that were spoken with last, by tenant, voice and version."""

    def __init__(self, database: Database, root: RootKey, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._root = root
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, NDArray[np.float32]]] = OrderedDict()

    async def get(self, tenant: UUID, voice: UUID, version: int) -> NDArray[np.float32]:
        """float32[256]; raises VoiceUnavailable, DecryptionError or ServerUnavailable."""
        key = (tenant, voice, version)
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._clock():
            self._kept.move_to_end(key)
            return kept[1]
        raw = await bounded(load_embedding(self._database, self._root, tenant, voice, version))
        if raw is None:
            self._kept.pop(key, None)
            raise VoiceUnavailable(str(voice))
        embedding = np.frombuffer(raw, "<f4").astype(np.float32)
        self._kept[key] = (self._clock() + TTL_S, embedding)
        while len(self._kept) > CAPACITY:
            self._kept.popitem(last=False)
        return embedding

    def clear(self) -> None:
        """Drop everything: with Redis' data the tombstones of deleted voices may be lost."""
        self._kept.clear()

    def forget(self, voice: UUID) -> None:
        """Drop every version of a voice."""
        for key in [key for key in self._kept if key[1] == voice]:
            del self._kept[key]
