"""Text to speak: from the argument, or from standard input as it is typed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbrelay.errors import UsageFault
from timbrelay.text_input import PIECE_CHARACTERS, check_text, read_pieces


class Typed:
    """Standard input at the end of a pipe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def type(self, data: bytes) -> None:
        os.write(self._write, data)

    def end(self) -> None:
        os.close(self._write)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    made = Typed()
    monkeypatch.setattr("sys.stdin", made)
    yield made
    os.close(made.fileno())


async def test_text_is_there_as_soon_as_it_is_typed(typed: Typed) -> None:
    """Each line is handed on before the next one is typed."""
    pieces = read_pieces("-")
    typed.type(b"one\n")
    assert await anext(pieces) == "one\n"
    typed.type("zwölf".encode())
    assert await anext(pieces) == "zwölf"
    typed.end()
    assert [piece async for piece in pieces] == []


async def test_a_character_may_arrive_in_halves(typed: Typed) -> None:
    """A character whose bytes are split between two reads comes out whole."""
    pieces = read_pieces("-")
    first, second = b"a\xc3", b"\xa9"
    typed.type(first)
    assert await anext(pieces) == "a"
    typed.type(second)
    assert await anext(pieces) == "é"
    typed.end()
    assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3"])
async def test_bytes_that_are_not_utf8_are_refused(typed: Typed, data: bytes) -> None:
    """Bytes that are not UTF-8 are the user's fault, also when the end cuts a character in two."""
    typed.type(data)
    typed.end()
    with pytest.raises(UsageFault, match="Standard input is not UTF-8"):
        _ = [piece async for piece in read_pieces("-")]


@given(st.text(max_size=50).filter(lambda text: text != "-"), st.integers(0, 2))
async def test_an_argument_is_cut_to_what_a_message_takes(text: str, times: int) -> None:
    """A long text is cut into pieces that a message can carry, and loses nothing."""
    whole = text + "x" * PIECE_CHARACTERS * times
    pieces = [piece async for piece in read_pieces(whole)]
    assert "".join(pieces) == whole
    assert all(0 < len(piece) <= PIECE_CHARACTERS for piece in pieces)


def test_an_argument_that_is_not_utf8_is_refused() -> None:
    """What the shell handed over as bytes outside UTF-8 is refused with the place."""
    assert check_text("é") == "é"
    with pytest.raises(UsageFault, match=r"not UTF-8 \(at character 1\)"):
        check_text(os.fsdecode(b"a\xff"))
