"""relay.dialects.answers."""

from __future__ import annotations

import pytest

from relay.dialects.answers import advise
from relay.errors import Refused, RelayError, RequestRefused, SentenceFailed, Unauthorized

WAIT_MS = 1200


def test_who_is_to_come_again_is_told_when() -> None:
    """In whole seconds, rounded up, with 429 and 503; a refusal for want of a key says what to bring."""
    assert advise(Refused("overloaded", "no", retry_after_ms=WAIT_MS), 503)["Retry-After"] == "2"
    assert "Retry-After" not in advise(RelayError("no"), 500)
    assert advise(Unauthorized(), 401)["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_what_is_of_no_use_is_not_tried_again(status: int) -> None:
    """Clients try these by themselves unless they are told not to; a fault of ours they may try."""
    assert advise(SentenceFailed("synthesis_failed", "no", retryable=False), status)["x-should-retry"] == "false"
    assert "x-should-retry" not in advise(SentenceFailed("timeout", "no", retryable=True), status)


def test_a_fault_of_ours_may_be_tried_again() -> None:
    """The client is told so in words, and by the header that is missing; nobody tries a 400 again."""
    assert "x-should-retry" not in advise(RelayError("a fault of ours"), 500)
    assert "x-should-retry" not in advise(RequestRefused(400, "invalid_value", "no"), 400)
