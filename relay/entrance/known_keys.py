"""Keys that this relay has found valid just now: wrong ones that come from the same address do not lock them out.

Many tenants may share an address: behind a NAT, or a proxy that the relay was not told of. A key that is known passes
the look at its address and nothing else; it is looked up as ever.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from storage.tenancy.api_keys import Caller

KEPT_S = 600.0
MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class _Known:
    key_id: UUID
    tenant: UUID | None
    until: float


class KnownKeys:
    """A bounded memory of keys' hashes, of one process; no key is in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._news_at = -math.inf

    def knows(self, key_hash: bytes) -> bool:
        """Whether this key was found valid in the last minutes, and nothing was heard of it since."""
        found = self._known.get(key_hash)
        return found is not None and self.clock() < found.until

    def remember(self, key_hash: bytes, caller: Caller, asked_at: float) -> None:
        """A key was found valid by a look-up that began at this time of `clock`; one from before any news is void."""
        if asked_at <= self._news_at:
            return
        self._known[key_hash] = _Known(caller.key_id, caller.tenant, self.clock() + KEPT_S)
        self._known.move_to_end(key_hash)
        if len(self._known) > MAX_KEYS:
            self._known.popitem(last=False)

    def forget(self, key_hash: bytes) -> None:
        """A key was found to open nothing."""
        self._known.pop(key_hash, None)

    def hear(self, key_or_tenant: UUID | None) -> None:
        """A key, or every key of a tenant, may be good for nothing any more; None: any may, something was missed."""
        self._news_at = self.clock()
        for key_hash, known in list(self._known.items()):
            if key_or_tenant is None or key_or_tenant in (known.key_id, known.tenant):
                del self._known[key_hash]
