"""Who may open another context: existing listeners win over new ones, and no tenant takes all of a relay."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from relay import metrics
from relay.errors import Refused


class Admission:
    """The one gate that every context of a relay process passes, whatever door it came in by."""

    def __init__(self, *, max_contexts: int, max_tenant_contexts: int, max_queue: int) -> None:
        self._max_contexts = max_contexts
        self._max_tenant_contexts = max_tenant_contexts
        self._max_queue = max_queue
        self._held: Counter[UUID] = Counter()
        self.queue_lag = 0

    def admit(self, tenant: UUID) -> None:
        """Take a place for one context; raises Refused when there is none."""
        if self._held[tenant] >= self._max_tenant_contexts:
            raise Refused(
                "too_many_contexts",
                f"you have {self._held[tenant]} contexts open here, the most allowed; end one first",
            )
        if self._held.total() >= self._max_contexts or self.queue_lag > self._max_queue:
            raise Refused("overloaded", "the service is full; try again in a few seconds")
        self._held[tenant] += 1
        metrics.CONTEXTS.set(self._held.total())

    def release(self, tenant: UUID) -> None:
        """Give a place back."""
        self._held[tenant] -= 1
        if self._held[tenant] <= 0:
            del self._held[tenant]
        metrics.CONTEXTS.set(self._held.total())
