"""The text to speak: given as an argument, or taken from standard input as it is typed."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator

from timbrelay.errors import UsageFault

STANDARD_INPUT = "-"
PIECE_CHARACTERS = 8_000
_READ_BYTES = 4096
_QUEUED_PIECES = 16


def check_text(text: str) -> str:
    """The text itself. Raises UsageFault when the shell handed over bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageFault(f"The text is not UTF-8 (at character {error.start}).") from error
    return text


def is_typed(text: str) -> bool:
    """Whether the text comes from a person at the keyboard."""
    return text == STANDARD_INPUT and sys.stdin is not None and sys.stdin.isatty()


async def read_pieces(text: str) -> AsyncIterator[str]:
    """The text in pieces that fit into a message; `-` reads standard input until its end.

    Raises UsageFault for bytes that are not UTF-8.
    """
    if text == STANDARD_INPUT:
        async for piece in _read_standard_input():
            yield piece
        return
    for start in range(0, len(text), PIECE_CHARACTERS):
        yield text[start : start + PIECE_CHARACTERS]


async def _read_standard_input() -> AsyncIterator[str]:
    if sys.stdin is None:
        raise UsageFault("Standard input is closed; give the text with --text.")
    decoder = codecs.getincrementaldecoder("utf-8")()
    async for data in _follow(sys.stdin.fileno()):
        try:
            if piece := decoder.decode(data, final=not data):
                yield piece
        except UnicodeDecodeError as error:
            raise UsageFault("Standard input is not UTF-8.") from error


async def _follow(descriptor: int) -> AsyncIterator[bytes]:
    """What is read from a descriptor, an empty piece at its end.

    A thread of its own reads: files, pipes and terminals alike cannot be waited for in one other way, and as a daemon
    it does not hold up the end of the program.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(_QUEUED_PIECES)

    def read(own: int) -> None:
        data = b"?"
        # After the end of the loop there is nobody to read for.
        with contextlib.suppress(RuntimeError, OSError), open(own, "rb", buffering=0) as file:
            while data:
                room.acquire()
                data = file.read(_READ_BYTES)
                loop.call_soon_threadsafe(queue.put_nowait, data)

    # Of its own, since it may outlive the one that it was given.
    threading.Thread(target=read, args=(os.dup(descriptor),), daemon=True).start()
    while data := await queue.get():
        room.release()
        yield data
    yield b""
