"""What every door of speech is given: who may come in, and where their contexts go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relay.clock import Clock
from relay.doors.conversation import RESTART_MS, Conversation
from relay.doors.limits import Limits
from relay.doors.resumption import Resumable
from relay.doors.utterance import Utterance
from relay.entrance.authentication import authenticate
from relay.entrance.gate import Gate
from relay.entrance.permits import check_permitted
from relay.entrance.visitors import Visitor
from relay.errors import Refused, RequestRefused
from relay.speaking.hub import Hub
from storage.database import Database
from storage.tenancy.api_keys import Deed, Scope


@dataclass(frozen=True, slots=True)
class Reception:
    """One a process."""

    hub: Hub
    gate: Gate
    database: Database
    limits: Limits
    clock: Clock
    resumable: Resumable = field(default_factory=Resumable)

    async def admit(self, key: str, origin: str) -> Visitor:
        """Who brings this key, if it may speak; raises Unauthorized, RequestRefused, Refused or ServiceUnavailable."""
        came_at = self.clock.monotonic()
        caller = await authenticate(key, origin, self.database, self.gate.limiter)
        if caller.tenant is None or Scope.SPEAK not in caller.scopes:
            text = "speech needs a tenant's key with the scope `speak`"
            raise RequestRefused(403, "insufficient_scope", text, field="Authorization")
        check_permitted(caller, Deed.SPEAK)
        if self.hub.draining:
            raise Refused("overloaded", "this relay restarts: connect again", retry_after_ms=RESTART_MS)
        await self.gate.quotas.learn(caller.tenant)
        return Visitor(caller.tenant, caller.key_id, caller.expires_at, caller.limits, origin, came_at)

    def converse(self, visitor: Visitor, forget: Callable[[int], int] | None = None) -> Conversation:
        """A conversation with them; `forget` is for a door that keeps audio behind the outbox."""
        return Conversation(visitor, self.hub, self.gate, self.clock, self.limits, self.resumable, forget)

    async def utter(
        self, visitor: Visitor, voice: str, text: str, *, mel: bool = False, speed: float = 1.0
    ) -> Utterance:
        """A whole text as one context; returns with the first audio, raises RelayError when it does not come to it."""
        return await Utterance(self.converse(visitor)).begin(voice, text, mel=mel, speed=speed)
