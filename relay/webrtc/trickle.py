"""Candidates that come after the offer: fragments of session descriptions (RFC 8840), as WHEP sends them."""

from __future__ import annotations

from dataclasses import dataclass

from relay.errors import InvalidRequest
from relay.webrtc.offers import MAX_CANDIDATES, is_useful

MEDIA_TYPE = "application/trickle-ice-sdpfrag"
MAX_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Trickled:
    """A candidate, and which media section it is for."""

    candidate: str
    """Without `a=` and `candidate:`."""
    mid: str | None
    index: int | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a fragment says."""

    ufrag: str
    """Of the ICE session that it belongs to."""
    candidates: tuple[Trickled, ...]
    """Those that can be reached."""
    complete: bool
    """Whether no more will come."""


def read_fragment(text: str) -> Fragment:
    """Read a fragment (RFC 8840, section 9); raises InvalidRequest."""
    ufrag, mid, index, complete = None, None, -1, False
    candidates: list[Trickled] = []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if line.startswith("m="):
            mid, index = None, index + 1
        elif name == "a=mid":
            mid = value.strip()[:64]
        elif name == "a=ice-ufrag":
            ufrag = value.strip()
        elif name == "a=candidate" and is_useful(value):
            # RFC 9725, section 4.3.2: all of it belongs to the first section of the bundle.
            candidates.append(Trickled(value.strip(), mid, max(index, 0)))
        elif line.strip() == "a=end-of-candidates":
            complete = True
    if ufrag is None:
        raise InvalidRequest("the fragment must name its ICE session by `a=ice-ufrag` (RFC 8840)", field="sdpfrag")
    if len(candidates) > MAX_CANDIDATES:
        raise InvalidRequest(f"a fragment has at most {MAX_CANDIDATES} candidates", field="sdpfrag")
    return Fragment(ufrag, tuple(candidates), complete)
