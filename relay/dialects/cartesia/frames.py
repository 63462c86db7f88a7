"""What clients are told, as JSON: the frames of the WebSocket, which are the events of `/tts/sse` as well."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from http import HTTPStatus

from relay.dialects.cartesia.refusals import refuse
from relay.errors import RelayError
from relay.speaking.events import Word

Frame = dict[str, object]
_DIGITS = 4
"""Of a second: a tenth of a millisecond."""


def chunk(context: str | None, data: bytes, step_ms: float, flush: int | None = None) -> Frame:
    """Audio; whole samples of the context's format."""
    encoded = base64.b64encode(data).decode()
    return {**_frame("chunk", context), "data": encoded, "step_time": round(step_ms, 3), **_flush(flush)}


def timestamps(
    context: str | None, words: Iterable[Word], since_s: float, speed: float, flush: int | None = None
) -> Frame:
    """Words and when they are heard, in seconds of the context's audio, which began `since_s` before the words'."""
    told = list(words)
    times: dict[str, object] = {
        "words": [word.text for word in told],
        "start": [round(since_s + word.start_s / speed, _DIGITS) for word in told],
        "end": [round(since_s + word.end_s / speed, _DIGITS) for word in told],
    }
    return {**_frame("timestamps", context), "word_timestamps": times, **_flush(flush)}


def flush_done(context: str, flush: int) -> Frame:
    """All that came before this flush is spoken."""
    return {**_frame("flush_done", context), "flush_done": True, "flush_id": flush}


def done(context: str | None) -> Frame:
    """The context is spoken to its end."""
    return {**_frame("done", context), "done": True}


def error(failure: RelayError, context: str | None, request: str, *, quiet: bool = False) -> Frame:
    """Why a context has ended, or a message was not followed.

    LiveKit asks for `done` before it asks for `type`: with true it ends its turn and raises nothing. So `quiet` is for
    a turn in which nothing was to be said; all other errors say false, although Cartesia's say true.
    """
    refusal = refuse(failure)
    return {
        "type": "error",
        "done": quiet,
        "title": refusal.title,
        "message": failure.message,
        "error_code": refusal.error_code,
        "status_code": refusal.status,
        "request_id": request,
        # Pipecat asks for it in every frame.
        "context_id": context,
    }


def _flush(flush: int | None) -> Frame:
    return {} if flush is None else {"flush_id": flush}


def _frame(kind: str, context: str | None) -> Frame:
    return {"type": kind, "done": False, "status_code": int(HTTPStatus.PARTIAL_CONTENT), "context_id": context}
