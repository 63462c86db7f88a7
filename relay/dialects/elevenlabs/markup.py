"""SSML where it was asked for: `<break time="1.5s"/>` is a pause, all other tags are taken out, what they hold is read.

Tags may be cut anywhere: what may still become one is kept until it is one, or too long for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_TAG = 200
"""Characters; whatever is longer is no tag."""
MAX_PAUSE_S = 3.0
"""ElevenLabs' own limit for one pause."""
MAX_PAUSES_S = 30.0
"""Of one context, together: silence costs no synthesis, but the client's time."""
DEFAULT_PAUSE_S = 1.0

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BREAK = re.compile(r"<break\b[^<>]*>", re.IGNORECASE)
_TIME = re.compile(r"""\btime\s*=\s*["']\s*(\d{1,6}(?:\.\d{1,3})?)\s*(ms|s)\s*["']""", re.IGNORECASE)
_OPEN_TAG = re.compile(r"<(?:/?[A-Za-z][^<>]*|/)?\Z")


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence."""

    seconds: float


class MarkupReader:
    """The text of one context, piece by piece."""

    def __init__(self) -> None:
        self._kept = ""
        self._left_s = MAX_PAUSES_S

    def push(self, text: str) -> list[str | Pause]:
        """What can be told of the text so far: text without tags, and pauses in their places."""
        text, self._kept = self._kept + text, ""
        opened = _OPEN_TAG.search(text[-MAX_TAG:])
        if opened is not None:
            self._kept = opened.group()
            text = text[: len(text) - len(self._kept)]
        return self._split(text)

    def flush(self) -> list[str | Pause]:
        """What was kept is no tag."""
        text, self._kept = self._kept, ""
        return [text] if text else []

    def _split(self, text: str) -> list[str | Pause]:
        parts: list[str | Pause] = []
        place = 0
        for tag in _TAG.finditer(text):
            parts.append(text[place : tag.start()])
            if _BREAK.fullmatch(tag.group()):
                parts.append(self._pause(tag.group()))
            place = tag.end()
        parts.append(text[place:])
        return [part for part in parts if part]

    def _pause(self, tag: str) -> Pause:
        given = _TIME.search(tag)
        seconds = DEFAULT_PAUSE_S
        if given is not None:
            seconds = float(given[1]) / (1000 if given[2].lower() == "ms" else 1)
        seconds = min(seconds, MAX_PAUSE_S, self._left_s)
        self._left_s -= seconds
        return Pause(seconds)
