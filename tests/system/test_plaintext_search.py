"""The search that the promise of no plaintext stands on finds what it is to find, in every form."""

from __future__ import annotations

import base64
import random

import pytest

from tests.system.plaintext import Search, Secret

_RANDOM = random.Random(5)
LARGE, KEY = Secret("recording", _RANDOM.randbytes(100_000)), Secret("key", _RANDOM.randbytes(32))
NOISE = _RANDOM.randbytes(1000)
PIECE = LARGE.content[50_001:50_022]


@pytest.mark.parametrize(
    "leak",
    [
        PIECE,
        PIECE.hex().encode(),
        b"a" + PIECE.hex().upper().encode(),
        base64.b64encode(PIECE),
        b"xyz" + base64.urlsafe_b64encode(PIECE + NOISE),
        repr(PIECE).encode(),
        repr(PIECE).replace("\\", "\\\\").encode(),
        b"".join(b"\\%03o" % byte for byte in PIECE),
    ],
)
@pytest.mark.parametrize("before", range(0, 8, 3))
def test_a_piece_of_a_secret_is_found_in_every_form_and_place(leak: bytes, before: int) -> None:
    """Raw, hexadecimal, base64 with any bytes before, as Python and as Postgres write it; other bytes are not."""
    search = Search(LARGE, KEY)
    assert search.find(NOISE[:before] + b" " + leak + b" " + NOISE) == {"recording"}
    assert search.find(NOISE) == set()


def test_every_sixteen_bytes_of_a_key_are_found() -> None:
    """Of a small secret each piece is looked for."""
    search = Search(LARGE, KEY)
    for start in range(len(KEY.content) - 15):
        assert search.find(b"?" * 9 + KEY.content[start : start + 16]) == {"key"}
