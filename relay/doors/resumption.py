"""Which connection has the context that a token resumes; of contexts that have ended, nothing is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.doors.conversation import Conversation


class Resumable:
    """One a process; bounded by the contexts that it holds open."""

    def __init__(self) -> None:
        self._owners: dict[str, Conversation] = {}
        self._tokens: dict[int, frozenset[str]] = {}

    def keep(self, owner: Conversation, tokens: frozenset[str]) -> None:
        """These, and no others, resume contexts of this connection."""
        for token in self._tokens.pop(id(owner), frozenset()) - tokens:
            self._owners.pop(token, None)
        if tokens:
            self._tokens[id(owner)] = tokens
            self._owners.update(dict.fromkeys(tokens, owner))

    def find(self, token: str) -> Conversation | None:
        """Whose context it is."""
        return self._owners.get(token)
