"""Which connection has the context that a token resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from relay.errors import InvalidMessage

if TYPE_CHECKING:
    from relay.doors.conversation import Conversation


class Resumable:
    """One a process; bounded by the contexts that its connections hold open, or held a moment ago."""

    def __init__(self) -> None:
        self._owners: dict[str, Conversation] = {}
        self._tokens: dict[int, frozenset[str]] = {}

    def keep(self, owner: Conversation, tokens: frozenset[str]) -> None:
        """These, and no others, resume contexts of this connection."""
        for token in self._tokens.pop(id(owner), frozenset()) - tokens:
            if self._owners.get(token) is owner:
                del self._owners[token]
        if tokens:
            self._tokens[id(owner)] = tokens
            self._owners.update(dict.fromkeys(tokens, owner))

    def find(self, token: str, tenant: UUID) -> Conversation:
        """Whose context it is; raises InvalidMessage with what to do where it is nobody's of this tenant."""
        owner = self._owners.get(token)
        if owner is None or owner.tenant != tenant:
            raise InvalidMessage(
                "nothing is to be resumed by this token: it was too long ago, or the relay has restarted, or it is "
                "another relay's; open a context and send the text of what was not heard again",
                field="token",
            )
        return owner
