"""The relay's errors: each knows its wire code, the field at fault, and whether to try again.

RelayError
├── InvalidMessage      a message that cannot be read
├── InvalidRequest      an HTTP request that cannot be read
├── RequestRefused      an HTTP request that is not served, with its own status and code
├── RequestUnderWay     one that is being done already, by its idempotency key
├── UnknownObject       something that the tenant does not have, whoever else may
├── Unauthorized        no key, or one that opens nothing
├── UnknownContext      a context that is not open
├── ContextExists       an id that is in use
├── UnknownPlace        a place in a context that its client cannot have come to
├── UnknownVoice        a voice that the tenant does not have
├── UnknownConsent      a consent that the tenant does not have
├── TextTooLong         more text than is taken at once
├── RecordingTooLarge   more bytes than a reference recording may have
├── NothingToSay        a context without a sound
├── Refused             no room for another context, or no worker for it
├── SentenceFailed      a sentence that the workers could not speak
└── ServiceUnavailable  a server behind the relay does not answer
"""

from __future__ import annotations


class RelayError(Exception):
    """Base of everything a client is told went wrong."""

    code = "internal"
    retryable = False
    status = 500
    retry_after_ms: int | None = None
    """When it may be worth trying again, where the relay can tell."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    def as_dict(self) -> dict[str, object]:
        """The error as every answer of the native protocol spells it."""
        spelt: dict[str, object] = {"code": self.code, "message": self.message, "field": self.field}
        spelt["retryable"] = self.retryable
        return spelt if self.retry_after_ms is None else {**spelt, "retry_after_ms": self.retry_after_ms}


class InvalidMessage(RelayError):
    """Raised when a message cannot be read; names the field and what it should be."""

    code = "invalid_message"
    status = 422


class InvalidRequest(RelayError):
    """Raised when a part of an HTTP request cannot be read; names the field and what it should be."""

    code = "invalid_request"
    status = 422


class RequestRefused(RelayError):
    """Raised when an HTTP request is understood and not served; `status` is one of RFC 9110's."""

    def __init__(self, status: int, code: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.status = status
        self.code = code


class RequestUnderWay(RelayError):
    """Raised when the first request with an idempotency key has not been answered yet."""

    code = "request_under_way"
    status = 409
    retryable = True
    retry_after_ms = 1000

    def __init__(self, message: str) -> None:
        super().__init__(message, field="Idempotency-Key")


class UnknownObject(RelayError):
    """Raised when the tenant has no such thing, and in the same words when another tenant has it."""

    status = 404

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"you have no {kind} {name[:64]!r}", field=kind)
        self.code = f"unknown_{kind}"


class Unauthorized(RelayError):
    """Raised when a request carries no key that opens anything."""

    code = "unauthorized"
    status = 401

    def __init__(self) -> None:
        super().__init__(
            "this service needs the API key of a tenant: send the header `Authorization: Bearer tr_...`",
            field="Authorization",
        )


class UnknownContext(RelayError):
    """Raised when a message names a context that is not open."""

    code = "unknown_context"

    def __init__(self, context: str) -> None:
        super().__init__(f"no context {context!r} is open; send `open` first", field="context")


class ContextExists(RelayError):
    """Raised when a context is opened under an id that is in use."""

    code = "context_exists"

    def __init__(self, context: str) -> None:
        super().__init__(f"context {context!r} is open; choose another id or wait for its end", field="context")


class UnknownPlace(RelayError):
    """Raised when a context is to go on after a chunk that was never sent."""

    code = "unknown_place"

    def __init__(self, sentence: int) -> None:
        super().__init__(f"the client cannot have come further than sentence {sentence}", field="sentence")


class UnknownVoice(RelayError):
    """Raised when the tenant has no such voice, or none that is ready."""

    code = "unknown_voice"
    status = 404

    def __init__(self, voice: str) -> None:
        super().__init__(
            f"there is no voice {voice[:64]!r} that is ready; list yours with GET /v1/voices", field="voice"
        )


class UnknownConsent(RelayError):
    """Raised when the tenant has no such consent."""

    code = "unknown_consent"
    status = 404

    def __init__(self, consent: str) -> None:
        super().__init__(f"there is no consent {consent[:64]!r}; make one with POST /v1/consents", field="consent")


class TextTooLong(RelayError):
    """Raised when one message or one context holds too much text."""

    code = "text_too_long"

    def __init__(self, limit: int, scope: str, *, of: str = "characters", field: str = "text") -> None:
        super().__init__(f"a {scope} takes at most {limit:,} {of}; send the rest in another", field=field)


class RecordingTooLarge(RelayError):
    """Raised when an upload has more bytes than a reference recording may have."""

    code = "recording_too_large"
    status = 413

    def __init__(self, limit: int, field: str = "recording") -> None:
        super().__init__(
            f"a reference recording has at most {limit // 1024:,} KiB; 5 to 10 seconds of speech are enough",
            field=field,
        )


class NothingToSay(RelayError):
    """Raised when a context ends without anything that has a sound."""

    code = "nothing_to_say"

    def __init__(self) -> None:
        super().__init__("the text holds nothing that can be spoken; send words or digits in English", field="text")


class Refused(RelayError):
    """Raised when a context is turned away so that those who are listening are not disturbed."""

    retryable = True
    status = 429

    def __init__(self, code: str, message: str, *, retry_after_ms: int | None = None, retryable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_ms = retry_after_ms
        self.retryable = retryable


class SentenceFailed(RelayError):
    """Raised when a sentence could not be spoken, with the worker's code."""

    status = 502

    def __init__(self, code: str, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class ServiceUnavailable(RelayError):
    """Raised when a server behind the relay does not answer."""

    code = "unavailable"
    retryable = True
    status = 503
    retry_after_ms = 2000

    def __init__(self) -> None:
        super().__init__("the service cannot reach its storage right now; try again in a few seconds")
