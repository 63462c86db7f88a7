"""Ogg pages as RFC 3533 has them, with Opus in them as RFC 7845 has it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.audio.ogg_opus import Pages, checksum
from tests.relay.audio.listening import PIECE, cut, decode, encode, encode_pieces, make_voice

FIRST, LAST = 2, 4


@dataclass(frozen=True, slots=True)
class Page:
    flags: int
    position: int
    serial: int
    number: int
    checked: bool
    packets: list[bytes]


@given(st.binary(max_size=300))
def test_checksum(page: bytes) -> None:
    """The checksum is the division by 0x04C11DB7, bit by bit."""
    register = 0
    for byte in page:
        register ^= byte << 24
        for _ in range(8):
            register = (register << 1 ^ (0x04C11DB7 if register & 0x80000000 else 0)) & 0xFFFFFFFF
    assert checksum(page) == register


def test_structure() -> None:
    """Head and tags have pages of their own, positions grow, one page begins the stream and one ends it."""
    pages = _read_pages(encode("opus_48000_64", make_voice(30_000)))
    assert [page.number for page in pages] == list(range(len(pages)))
    assert len({page.serial for page in pages}) == 1
    assert [page.flags for page in pages] == [FIRST, *[0] * (len(pages) - 2), LAST]
    assert all(page.checked for page in pages)
    assert pages[0].packets[0].startswith(b"OpusHead")
    assert pages[1].packets[0].startswith(b"OpusTags")
    assert [page.position for page in pages[:2]] == [0, 0]
    positions = [page.position for page in pages[2:]]
    assert positions == sorted(positions)
    counted = 960 * np.cumsum([len(page.packets) for page in pages[2:]])
    assert positions[:-1] == counted[:-1].tolist()


@pytest.mark.parametrize("samples", [1, 480, 1920, 29_999])
def test_end(samples: int) -> None:
    """The last position is pre-skip and twice the samples, within the last packet (RFC 7845, 4.4)."""
    pages = _read_pages(encode("opus_48000_64", make_voice(samples)))
    (pre_skip,) = struct.unpack_from("<H", pages[0].packets[0], 10)
    assert pages[-1].position == pre_skip + 2 * samples
    coded = 960 * sum(len(page.packets) for page in pages[2:])
    assert coded - 960 < pages[-1].position <= coded


def test_head() -> None:
    """The head says version 1, one channel, what to skip, and 48 kHz, which libsndfile plays it at."""
    head = _read_pages(encode("opus_48000_64", make_voice(480)))[0].packets[0]
    version, channels, pre_skip, rate, gain, family = struct.unpack("<BBHIhB", head[8:])
    assert (version, channels, rate, gain, family) == (1, 1, 48000, 0, 0)
    assert 0 < pre_skip < 960


def test_a_page_a_piece() -> None:
    """Each piece of 80 ms is out at once as a page of four packets."""
    first, *others, _ = encode_pieces("opus_48000_64", cut(make_voice(10 * PIECE)))
    assert [len(page.packets) for page in _read_pages(first)] == [1, 1, 4]
    assert all([len(page.packets) for page in _read_pages(piece)] == [4] for piece in others)


def test_long_pieces() -> None:
    """A piece of more packets than a page has room for becomes several pages, and no packet is torn."""
    voice = make_voice(6 * 24_000)
    pages = _read_pages(encode("opus_48000_192", voice, [len(voice)]))
    assert len(pages) > 4
    assert all(page.checked for page in pages)
    _, heard = decode(encode("opus_48000_192", voice, [len(voice)]))
    assert len(heard) == 2 * len(voice)


def test_nothing() -> None:
    """A response without a sample is a head, tags and an empty last page."""
    pages = _read_pages(encode("opus_48000_64", make_voice(0)))
    assert [(page.flags, len(page.packets)) for page in pages] == [(FIRST, 1), (0, 1), (LAST, 0)]


def test_serials_differ() -> None:
    """Two files can be put one after the other: their streams have numbers of their own."""
    one, other = (encode("opus_48000_64", make_voice(4800)) for _ in range(2))
    assert _read_pages(one)[0].serial != _read_pages(other)[0].serial
    _, heard = decode(one + other)
    assert len(heard) >= 2 * 2 * 4800 - 960


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 509, 510, 511, 1275])
def test_lacing(size: int) -> None:
    """A packet ends with a segment shorter than 255 bytes, if need be an empty one."""
    packet = bytes([7]) * size
    (page,) = _read_pages(Pages(1).write([packet, b"next"], 960))
    assert page.packets == [packet, b"next"]
    assert page.checked


def _read_pages(encoded: bytes) -> list[Page]:
    pages, at = [], 0
    while at < len(encoded):
        magic, version, flags, position, serial, number, crc, segments = struct.unpack_from("<4sBBqIIIB", encoded, at)
        assert (magic, version) == (b"OggS", 0)
        lacing = encoded[at + 27 : at + 27 + segments]
        body = at + 27 + segments
        end = body + sum(lacing)
        blank = encoded[at : at + 22] + bytes(4) + encoded[at + 26 : end]
        pages.append(
            Page(flags, position, serial, number, checksum(blank) == crc, _take_packets(encoded, body, lacing))
        )
        at = end
    return pages


def _take_packets(encoded: bytes, at: int, lacing: bytes) -> list[bytes]:
    packets, size = [], 0
    for segment in lacing:
        size += segment
        if segment < 255:
            packets.append(encoded[at : at + size])
            at, size = at + size, 0
    assert size == 0, "a packet goes on in the next page"
    return packets
