"""Errors in the dialect's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.dialects.elevenlabs.frames import error_frame, name_context
from relay.dialects.elevenlabs.options import DEFAULT_FORMAT, read_options
from relay.dialects.elevenlabs.refusals import MAX_REASON_BYTES, answer_error, close_code, close_reason
from relay.errors import (
    InvalidMessage,
    InvalidRequest,
    NothingToSay,
    Refused,
    RelayError,
    RequestRefused,
    ServiceUnavailable,
    TextTooLong,
    Unauthorized,
    UnknownVoice,
)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Unauthorized(), 401, "invalid_api_key"),
        (UnknownVoice("x"), 404, "voice_not_found"),
        (TextTooLong(10, "request"), 400, "max_character_limit_exceeded"),
        (NothingToSay(), 400, "input_text_empty"),
        (Refused("too_many_contexts", "one too many"), 429, "too_many_concurrent_requests"),
        (Refused("overloaded", "no room", retry_after_ms=1500), 429, "system_busy"),
        (Refused("quota_exceeded", "used up", retryable=False), 429, "quota_exceeded"),
        (RequestRefused(403, "insufficient_scope", "not this key"), 403, "missing_permissions"),
        (ServiceUnavailable(), 503, "service_unavailable"),
        (RelayError("a fault"), 500, "internal_error"),
    ],
)
def test_an_answer_has_the_status_and_the_code_that_clients_compare(error: RelayError, status: int, code: str) -> None:
    """In both keys that have held it, with our own sentence."""
    answer = answer_error(error)
    detail: dict[str, Any] = json.loads(bytes(answer.body))["detail"]
    assert answer.status_code == status
    assert detail["status"] == detail["code"] == code
    assert detail["message"] == error.message
    assert ("retry-after" in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (InvalidRequest("`text`: field required", field="text"), ["body", "text"]),
        (InvalidRequest("`x`", field="voice_settings.speed"), ["body", "voice_settings", "speed"]),
        (InvalidMessage("there is no format", field="output_format"), ["query", "output_format"]),
        (InvalidRequest("no JSON"), ["body"]),
    ],
)
def test_what_cannot_be_read_is_a_list_with_its_place(error: RelayError, where: list[str]) -> None:
    """As FastAPI has it, which the SDK raises as an error of its own."""
    answer = answer_error(error)
    assert answer.status_code == 422
    (detail,) = json.loads(bytes(answer.body))["detail"]
    assert detail["loc"] == where
    assert detail["msg"] == error.message


def test_an_error_frame_is_one_for_every_client() -> None:
    """The SDK looks for `message`, LiveKit for `error`, both spellings of the id are there."""
    frame = json.loads(error_frame(name_context("a"), UnknownVoice("x"), final=True))
    assert frame["message"]
    assert frame["error"] == "voice_not_found"
    assert frame["code"] == 1008
    assert frame["contextId"] == frame["context_id"] == "a"
    assert frame["isFinal"] is True


def test_a_close_has_the_reason_as_far_as_it_fits() -> None:
    """In whole characters."""
    error = RelayError("é" * 100)
    assert len(close_reason(error).encode()) <= MAX_REASON_BYTES
    assert close_reason(error) == "é" * (MAX_REASON_BYTES // 2)
    assert close_code(error) == 1011
    assert close_code(UnknownVoice("x")) == 1008


def test_a_query_is_read_and_what_is_not_known_passed_over() -> None:
    """With the defaults of the dialect."""
    options = read_options({"model_id": "eleven_flash_v2_5", "seed": "1", "anything": "else"})
    assert options.format.name == DEFAULT_FORMAT
    assert (options.inactivity_s, options.sync_alignment, options.ssml, options.phrases) == (20, False, False, False)
    options = read_options(
        {
            "output_format": "ulaw_8000",
            "inactivity_timeout": "180",
            "sync_alignment": "true",
            "enable_ssml_parsing": "true",
            "auto_mode": "true",
        }
    )
    assert options.format.name == "ulaw_8000"
    assert (options.inactivity_s, options.sync_alignment, options.ssml, options.phrases) == (180, True, True, True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"output_format": "mpeg"}, "output_format"),
        ({"output_format": "pcm_12345"}, "output_format"),
        ({"inactivity_timeout": "181"}, "inactivity_timeout"),
        ({"inactivity_timeout": "soon"}, "inactivity_timeout"),
        ({"sync_alignment": "perhaps"}, "sync_alignment"),
    ],
)
def test_what_cannot_be_read_of_a_query_is_named(query: dict[str, str], field: str) -> None:
    """Rather than passed over."""
    with pytest.raises(InvalidMessage) as caught:
        read_options(query)
    assert caught.value.field == field
