"""One encoding for each JSON value, so that a hash over it means the value and not how somebody wrote it (RFC 8785)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

INTEGER_LIMIT = 2**53
_SMALLEST = 1e-6
_PLAIN_LIMIT = 1e21


def canonical(value: object) -> bytes:
    """The value in RFC 8785's form: keys in order of their UTF-16 units, no spaces, numbers as ECMAScript writes them.

    Raises ValueError for what has no such form: other types, keys that are not text, half a surrogate pair, integers
    that a double does not hold, and (ours) numbers so small that ECMAScript would give them an exponent.
    """
    return _encode(value).encode()


def _encode(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, int | float):
        return _encode_number(value)
    if isinstance(value, Mapping):
        pairs = sorted(value.items(), key=lambda pair: _sort_key(pair[0]))
        return "{" + ",".join(f"{_encode(key)}:{_encode(item)}" for key, item in pairs) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return "[" + ",".join(_encode(item) for item in value) + "]"
    raise ValueError(f"a {type(value).__name__} is no JSON value")


def _sort_key(key: object) -> bytes:
    if not isinstance(key, str):
        raise ValueError(f"a key of a JSON object is text, not a {type(key).__name__}")
    return key.encode("utf-16-be")


def _encode_number(value: int | float) -> str:
    if isinstance(value, int):
        if abs(value) >= INTEGER_LIMIT:
            raise ValueError("an integer beyond 2^53 does not keep its value in JSON")
        return str(int(value))
    if value == 0:
        return "0"
    if not math.isfinite(value) or not _SMALLEST <= abs(value) < _PLAIN_LIMIT:
        raise ValueError("a number is finite, and 0 or between 1e-6 and 1e21 in size")
    digits = format(Decimal(repr(value)), "f")
    return digits.removesuffix(".0")
