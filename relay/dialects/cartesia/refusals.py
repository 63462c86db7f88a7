"""Errors in Cartesia's words: a code, a title, a status. Its documents ("API errors") name some of the codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from relay.errors import RelayError


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a client of Cartesia knows it."""

    error_code: str
    title: str
    status: int


_BAD_REQUEST = HTTPStatus.BAD_REQUEST
_KNOWN: Mapping[str, Refusal] = {
    "unauthorized": Refusal("unauthorized", "Invalid API key", 401),
    "insufficient_scope": Refusal("forbidden", "Not allowed with this key", 403),
    "unknown_voice": Refusal("voice_not_found", "Voice not found", 404),
    "not_found": Refusal("not_found", "Not found", 404),
    "invalid_message": Refusal("invalid_request", "Invalid request", _BAD_REQUEST),
    "invalid_request": Refusal("invalid_request", "Invalid request", _BAD_REQUEST),
    "text_too_long": Refusal("transcript_too_long", "Transcript too long", _BAD_REQUEST),
    "nothing_to_say": Refusal("transcript_empty", "Nothing to speak", _BAD_REQUEST),
    # As where credits are used up: its clients do not try again, which would be of no use before tomorrow.
    "quota_exceeded": Refusal("quota_exceeded", "Quota exceeded", 402),
    # What is the tenant's own doing, and what is ours: the one asks for patience, the other for another relay.
    "too_many_contexts": Refusal("concurrency_limited", "Too many concurrent requests", 429),
    "rate_limited": Refusal("rate_limited", "Too many requests", 429),
    "overloaded": Refusal("overloaded", "Service is busy", 503),
    "unavailable": Refusal("unavailable", "Service unavailable", 503),
    "method_not_allowed": Refusal("method_not_allowed", "Not for this method", 405),
    "voice_unavailable": Refusal("voice_unavailable", "Voice not available", 409),
}


def refuse(error: RelayError) -> Refusal:
    """How an error is called here; one that Cartesia has no word for keeps ours."""
    known = _KNOWN.get(error.code)
    if known is not None:
        return known
    return Refusal(error.code, HTTPStatus(error.status).phrase, error.status)
