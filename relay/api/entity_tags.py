"""Entity tags and the conditions on them (RFC 9110, sections 8.8.3 and 13.1)."""

from __future__ import annotations

import hashlib
import re

from relay.errors import InvalidRequest, RequestRefused

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
MAX_LENGTH = 2048


def tag_of(content: bytes) -> str:
    """The strong tag of a representation: 128 bits of its SHA-256."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def matches_weakly(header: str, tag: str) -> bool:
    """Whether `If-None-Match` names the tag; a header that cannot be read names nothing."""
    if header.strip() == "*":
        return True
    return tag in {found.removeprefix("W/") for found in _read_tags(header)}


def check_match(header: str | None, tag: str) -> None:
    """Raises RequestRefused (412) unless `If-Match`, where there is one, names the tag; InvalidRequest if malformed."""
    if header is None or header.strip() == "*":
        return
    tags = _read_tags(header)
    if not tags:
        raise InvalidRequest("`If-Match` must be `*` or entity tags in quotes, as `ETag` gave them", field="If-Match")
    if tag not in tags:
        raise RequestRefused(
            412, "precondition_failed", "this was changed meanwhile; read it again, then decide", field="If-Match"
        )


def _read_tags(header: str) -> list[str]:
    """The tags of a list; none where anything else stands in it."""
    if len(header) > MAX_LENGTH or _TAG.sub("", header).strip(" \t,"):
        return []
    return _TAG.findall(header)
