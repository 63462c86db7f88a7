"""What clients are sent over a WebSocket, spelt so that each of them finds the keys it reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from relay.dialects.elevenlabs.alignment import Tile
from relay.dialects.elevenlabs.refusals import close_code, spell
from relay.errors import RelayError

Naming = dict[str, str | None]
"""The keys that say whose a frame is."""


def name_context(name: str | None) -> Naming:
    """A context's id, in both spellings: one client reads this, another that."""
    return {"contextId": name, "context_id": name}


def audio_frame(naming: Naming, audio: bytes, tile: Tile | None, *, absolute: bool) -> str:
    """Sound, and the characters that it settles.

    Times in `alignment` count from the tile's start; with `absolute` those in `normalizedAlignment` count from the
    context's start, for the client that adds nothing to them.
    """
    frame: dict[str, Any] = {
        "audio": base64.b64encode(audio).decode() if audio else None,
        "isFinal": None,
        "alignment": None if tile is None else _align(tile, tile.start_ms),
        "normalizedAlignment": None if tile is None else _align(tile, 0 if absolute else tile.start_ms),
    }
    return _write(frame, naming)


def final_frame(naming: Naming) -> str:
    """Nothing of this context follows."""
    frame = {"audio": None, "isFinal": True, "is_final": True, "alignment": None, "normalizedAlignment": None}
    return _write(frame, naming)


def error_frame(naming: Naming, error: RelayError, *, final: bool, unspoken: str = "") -> str:
    """What went wrong; `final` where the context has ended with it, `unspoken` the text that it leaves unsaid."""
    frame: dict[str, Any] = {"message": error.message, "error": spell(error).code, "code": close_code(error)}
    if error.field is not None:
        frame["param"] = error.field
    if error.retry_after_ms is not None:
        frame["retry_after_ms"] = error.retry_after_ms
    if unspoken:
        frame["unspoken"] = unspoken
    if final:
        frame |= {"audio": None, "isFinal": True, "is_final": True}
    return _write(frame, naming)


def _align(tile: Tile, origin_ms: int) -> dict[str, Sequence[object]]:
    durations = [end - start for start, end in zip(tile.starts_ms, tile.ends_ms, strict=True)]
    return {
        "chars": tile.chars,
        "charStartTimesMs": [start - origin_ms for start in tile.starts_ms],
        # Their API description has the one spelling, their SDK the other.
        "charDurationsMs": durations,
        "charsDurationsMs": durations,
    }


def _write(frame: dict[str, Any], naming: Naming) -> str:
    return json.dumps(frame | naming, separators=(",", ":"))
