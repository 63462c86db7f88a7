"""Lists in pages: newest first, each page beginning where the one before it ended, whatever was added meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Column, Row, Select, tuple_

MAX_LIMIT = 1000

Item = TypeVar("Item")

Position = tuple[datetime, UUID]
"""When an item was made, and its id, since two may have been made at the same moment."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is asked for: at most `limit` items (1 to 1000) that follow the position `after`, or the first ones."""

    limit: int = 100
    after: Position | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that would not be a bound."""
        if not 1 <= self.limit <= MAX_LIMIT:
            raise ValueError(f"a page holds 1 to {MAX_LIMIT} items, not {self.limit}")


@dataclass(frozen=True, slots=True)
class Slice(Generic[Item]):
    """What is given: the items, and where the next page begins; None when this is the last."""

    items: tuple[Item, ...]
    after: Position | None


def turn_to(query: Select[Any], page: Page, made: Column[Any], key: Column[Any]) -> Select[Any]:
    """The query for a page, newest first, with one row more than the page holds."""
    if page.after is not None:
        query = query.where(tuple_(made, key) < tuple_(*page.after))
    return query.order_by(made.desc(), key.desc()).limit(page.limit + 1)


def cut(
    rows: Sequence[Row[Any]], page: Page, read: Callable[[Row[Any]], Item], place: Callable[[Item], Position]
) -> Slice[Item]:
    """The rows of `turn_to` as a slice."""
    items = tuple(read(row) for row in rows[: page.limit])
    return Slice(items, place(items[-1]) if len(rows) > page.limit else None)
