"""Sessions of `POST /start`: who has one may connect without the key that it was made with."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from relay.errors import Refused, UnknownObject

TTL_S = 600.0
"""After it was last used."""
MAX_TICKETS = 1000
_FULL_MS = 5000


@dataclass(slots=True)
class Ticket:
    """A backend gives it to its page, which then needs no key."""

    key: SecretStr
    body: Mapping[str, Any]
    expires_at: float


class Tickets:
    """In memory, bounded, for as long as they are used."""

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}

    def issue(self, key: str, body: Mapping[str, Any], now: float) -> str:
        """The name of a new one; raises Refused when there are too many."""
        self._tickets = {name: ticket for name, ticket in self._tickets.items() if ticket.expires_at > now}
        if len(self._tickets) >= MAX_TICKETS:
            raise Refused("overloaded", "too many sessions were started and not used", retry_after_ms=_FULL_MS)
        name = secrets.token_urlsafe(24)
        self._tickets[name] = Ticket(SecretStr(key), body, now + TTL_S)
        return name

    def use(self, name: str, now: float) -> Ticket:
        """One that is good, for a while longer; raises UnknownObject."""
        ticket = self._tickets.get(name)
        if ticket is None or ticket.expires_at <= now:
            raise UnknownObject("session", name)
        ticket.expires_at = now + TTL_S
        return ticket
