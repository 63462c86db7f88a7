"""Looks for pieces of secrets in whatever was left lying around, in the forms in which a program may write bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PIECE = 16
"""Bytes; a shorter piece of a recording is no recording, and may be there by chance."""
_SMALL = 4096
_STEP = 4
"""Of large secrets every fourth piece is known, so that 19 bytes in a row are found for certain."""
_VARIED = 8
"""Different bytes in a piece at the least: silence and padding are everywhere."""
_FILTER_BITS = 25
_MIX, _MIX_SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){16,}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}")
_ESCAPE = re.compile(rb"\\+x([0-9a-fA-F]{2})|\\+([0-3][0-7]{2})")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Secret:
    """What must not be found, and what it is called when it is."""

    name: str
    content: bytes


class Search:
    """Finds pieces of PIECE bytes of any of the secrets, raw, in hexadecimal, in base64 or escaped."""

    def __init__(self, *secrets: Secret) -> None:
        self._names = sorted({secret.name for secret in secrets})
        pieces = [_cut(secret.content) for secret in secrets]
        owners = [self._names.index(secret.name) for secret in secrets]
        for secret, found in zip(secrets, pieces, strict=True):
            assert len(found), f"{secret.name} has no piece to look for"
        mixed = np.concatenate([_mix(found[:, 0], found[:, 1]) for found in pieces])
        order = np.argsort(mixed)
        self._pieces = mixed[order]
        self._owners = np.repeat(owners, [len(found) for found in pieces])[order]
        self._filter = np.zeros(1 << _FILTER_BITS, bool)
        self._filter[_slot(np.concatenate([found[:, 0] for found in pieces]))] = True

    def find(self, haystack: bytes) -> set[str]:
        """The names of the secrets that the haystack holds a piece of."""
        return {name for form in _forms(haystack) for name in self._find_raw(form)}

    def find_all(self, places: Mapping[str, bytes]) -> set[tuple[str, str]]:
        """What is found where."""
        return {(name, place) for place, content in places.items() for name in self.find(content)}

    def _find_raw(self, haystack: bytes) -> set[str]:
        found: set[str] = set()
        for shift in range(8):
            count = (len(haystack) - shift) // 8
            if count < 2:
                break
            words = np.frombuffer(haystack, np.uint64, count, shift)
            at = np.flatnonzero(self._filter[_slot(words[:-1])])
            mixed = _mix(words[at], words[at + 1])
            near = np.minimum(np.searchsorted(self._pieces, mixed), len(self._pieces) - 1)
            found |= {self._names[self._owners[index]] for index in near[self._pieces[near] == mixed]}
        return found


def _cut(content: bytes) -> Words:
    """The varied pieces of a secret as pairs of words."""
    count, step = len(content) - PIECE + 1, 1 if len(content) <= _SMALL else _STEP
    if count < 1:
        return np.empty((0, 2), np.uint64)
    pieces = np.lib.stride_tricks.sliding_window_view(np.frombuffer(content, np.uint8), PIECE)[::step]
    varied = (np.diff(np.sort(pieces, axis=1), axis=1) != 0).sum(axis=1) + 1 >= _VARIED
    return np.ascontiguousarray(pieces[varied]).view(np.uint64)


def _mix(first: Words, second: Words) -> Words:
    return first * _MIX + second * _MIX_SECOND


def _slot(words: Words) -> Words:
    return (words * _MIX) >> np.uint64(64 - _FILTER_BITS)


def _forms(haystack: bytes) -> Iterator[bytes]:
    yield haystack
    yield b"".join(bytes.fromhex(run.decode()) for run in _HEX.findall(haystack))
    # One digit before it shifts all that follow.
    yield b"".join(bytes.fromhex(run[1 : 1 + (len(run) - 1) // 2 * 2].decode()) for run in _HEX.findall(haystack))
    for start in range(4):
        runs = (run[start : start + (len(run) - start) // 4 * 4] for run in _BASE64.findall(haystack))
        yield b"".join(base64.b64decode(run.translate(_URL_SAFE)) for run in runs)
    if b"\\" in haystack:
        yield _ESCAPE.sub(lambda found: bytes([int(found[1], 16) if found[1] else int(found[2], 8)]), haystack)
