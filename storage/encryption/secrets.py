"""Bytes that must not be seen: they cannot be printed, logged, formatted, pickled or put into JSON by accident."""

from __future__ import annotations

import hmac
from typing import Any, NoReturn

HIDDEN = "**********"


class SecretBytes:
    """A key, or a person's data in the clear; `reveal` is the one way to it, and easy to search for."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    def reveal(self) -> bytes:
        """The bytes themselves."""
        return self._content

    def __repr__(self) -> str:
        return f"{type(self).__name__}({HIDDEN})"

    def __len__(self) -> int:
        return len(self._content)

    def __eq__(self, other: object) -> bool:
        """In constant time for secrets of one length."""
        return isinstance(other, SecretBytes) and hmac.compare_digest(self._content, other._content)

    def __hash__(self) -> NoReturn:
        raise TypeError("a secret is no key of a dictionary")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a secret does not leave its process")
