"""Our errors in OpenAI's shape: the status chooses the client's exception, the headers whether it tries again."""

from __future__ import annotations

import json

import pytest

from relay.dialects.openai.errors import answer_error
from relay.errors import (
    NothingToSay,
    RecordingTooLarge,
    Refused,
    RelayError,
    RequestRefused,
    SentenceFailed,
    ServiceUnavailable,
    TextTooLong,
    Unauthorized,
    UnknownObject,
)

WAIT_MS = 1500


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (Unauthorized(), 401, "invalid_request_error", None, "invalid_api_key"),
        (RequestRefused(403, "insufficient_scope", "no"), 403, "invalid_request_error", None, "insufficient_scope"),
        (UnknownObject("consent", "x"), 404, "invalid_request_error", "consent", "unknown_consent"),
        (RecordingTooLarge(1024, "audio_sample"), 413, "invalid_request_error", "audio_sample", "recording_too_large"),
        (NothingToSay(), 400, "invalid_request_error", "input", "nothing_to_say"),
        (TextTooLong(10, "context"), 400, "invalid_request_error", "input", "text_too_long"),
        (RequestRefused(422, "too_short", "no", field="x"), 400, "invalid_request_error", "x", "too_short"),
        (Refused("rate_limited", "no", retry_after_ms=WAIT_MS), 429, "requests", None, "rate_limit_exceeded"),
        (Refused("overloaded", "no", retry_after_ms=WAIT_MS), 429, "requests", None, "overloaded"),
        (Refused("quota_exceeded", "no", retryable=False), 429, "insufficient_quota", None, "insufficient_quota"),
        (SentenceFailed("synthesis_failed", "no", retryable=False), 500, "server_error", None, "synthesis_failed"),
        (SentenceFailed("timeout", "no", retryable=True), 503, "server_error", None, "timeout"),
        (ServiceUnavailable(), 503, "server_error", None, "unavailable"),
        (RelayError("a fault of ours"), 500, "server_error", None, "internal"),
    ],
)
def test_an_error_has_its_status_and_four_members(
    error: RelayError, status: int, kind: str, param: str | None, code: str
) -> None:
    """All four are always there, `param` and `code` maybe null."""
    answer = answer_error(error)
    message = error.message
    wanted = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    assert (answer.status_code, json.loads(bytes(answer.body))) == (status, wanted)
    assert answer.headers["content-type"] == "application/json"


def test_who_may_try_again_is_told_when() -> None:
    """`Retry-After` in whole seconds, rounded up; a quota that is used up, or a conflict, is not tried again."""
    waits = answer_error(Refused("overloaded", "no", retry_after_ms=WAIT_MS))
    assert (waits.headers["retry-after"], "x-should-retry" in waits.headers) == ("2", False)
    assert answer_error(ServiceUnavailable()).headers["retry-after"] == "2"
    used_up = answer_error(Refused("quota_exceeded", "no", retry_after_ms=60_000, retryable=False))
    assert (used_up.headers["retry-after"], used_up.headers["x-should-retry"]) == ("60", "false")
    assert answer_error(RequestRefused(409, "wrong_state", "no")).headers["x-should-retry"] == "false"
    assert "x-should-retry" not in answer_error(RelayError("a fault of ours")).headers
    assert answer_error(Unauthorized()).headers["www-authenticate"] == "Bearer"
