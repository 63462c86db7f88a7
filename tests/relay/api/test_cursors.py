"""Cursors, entity tags and kept answers, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.api.cursors import read_count, read_place, read_word, write_count, write_place, write_word
from relay.api.entity_tags import check_match, matches_weakly, tag_of
from relay.api.keeping import Kept
from relay.errors import InvalidRequest, RelayError

ONE_RELAY = True
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 1), timezones=st.just(UTC))
READERS: list[Callable[[str, str], object]] = [read_place, read_count, read_word]


@given(TIMES, st.uuids(), st.text(max_size=20))
def test_a_cursor_is_read_as_it_was_written(at: datetime, row: UUID, kind: str) -> None:
    """By the list that gave it and by no other; the end of a list has none."""
    cursor = write_place(kind, (at, row))
    assert cursor is not None and len(cursor) <= 128
    assert read_place(kind, cursor) == (at, row)
    with pytest.raises(InvalidRequest):
        read_place(kind + "'", cursor)
    assert write_place(kind, None) is None and read_place(kind, "") is None


@given(st.integers(0, 2**63 - 1), st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True))
def test_numbers_and_words_too(count: int, word: str) -> None:
    """Where a list is in the order of one of them."""
    assert read_count("list", write_count("list", count) or "") == count
    cursor = write_word("list", word)
    assert cursor is not None and len(cursor) <= 128
    assert read_word("list", cursor) == word


@given(st.one_of(st.text(min_size=1, max_size=130), st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True)))
def test_what_is_no_cursor_is_refused_and_breaks_nothing(text: str) -> None:
    """Whatever a client makes up."""
    for read in READERS:
        with pytest.raises(InvalidRequest):
            read("list", text)


@given(st.text(max_size=200))
def test_any_header_is_read_or_refused_in_no_time(header: str) -> None:
    """RFC 9110: `*` and lists of tags in quotes; weak ones never match for a change."""
    for text in (header, '"a" , ' * 300 + header, " ,\t" * 600 + header):
        matches_weakly(text, '"x"')
        try:
            check_match(text, tag_of(b"x"))
        except RelayError as error:
            assert error.status in (412, 422)


def test_weak_tags_count_for_reading_alone() -> None:
    """RFC 9110, section 13.1."""
    tag = tag_of(b"x")
    assert matches_weakly(f'"a", W/{tag}', tag)
    check_match(f'"a",{tag}', tag)
    with pytest.raises(RelayError):
        check_match(f"W/{tag}", tag)


async def test_an_answer_is_kept_for_a_while_and_looked_for_once() -> None:
    """However many ask at once; an error is not kept."""
    now, asked = 0.0, 0
    kept: Kept[UUID] = Kept(5.0, lambda: now)

    async def find() -> UUID:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked == 1:
            raise InvalidRequest("not now")
        return uuid4()

    with pytest.raises(InvalidRequest):
        await kept.get(find)
    answers = await asyncio.gather(*(kept.get(find) for _ in range(10)))
    assert (asked, len(set(answers))) == (2, 1)
    now = 5.1
    assert await kept.get(find) != answers[0]
