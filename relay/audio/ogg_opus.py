"""Opus in Ogg (RFC 7845, RFC 3533): a page as soon as there is a packet, and an end that is exact to the sample."""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator

from relay.audio.compression import Frames
from relay.audio.samples import Samples

PLAYED_RATE = 48_000
"""Hz that Opus is decoded at, and that positions in the file are counted in (RFC 7845, 4)."""

PACKET_MS = 20

_OPTIONS = {
    "application": "audio",
    "frame_duration": str(PACKET_MS),
    "compression_level": "5",
    "vbr": "constrained",  # without it speech takes a fifth more than the client asked for
}
_PACKET_SAMPLES = PLAYED_RATE * PACKET_MS // 1000
_VENDOR = b"Timbrelay"
_MOST_SEGMENTS = 255
_FIRST, _LAST = 2, 4
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class OggOpus:
    """Samples at `rate` Hz, one of Opus' own (8, 12, 16, 24 or 48 kHz), to a file that is played at 48 kHz."""

    def __init__(self, rate: int, bitrate: int) -> None:
        self._frames = Frames("libopus", "s16", rate, _OPTIONS, bitrate=bitrate)
        self._upsampling = PLAYED_RATE // rate
        self._pre_skip = struct.unpack_from("<H", self._frames.context.extradata or b"", 10)[0]
        self._pages = Pages(secrets.randbits(32))
        self._begun, self._taken, self._position = False, 0, 0

    def encode(self, samples: Samples) -> bytes:
        self._taken += len(samples)
        return self._begin() + self._write(self._frames.push(samples))

    def finish(self) -> bytes:
        """The last page's position is the true end: a player drops what the last packet has after it."""
        end = self._pre_skip + self._taken * self._upsampling
        return self._begin() + self._write(self._frames.finish(), end=end)

    def _write(self, packets: list[bytes], end: int | None = None) -> bytes:
        if end is None and not packets:
            return b""
        groups = list(_group(packets)) or [[]]
        pages = [self._write_page(group) for group in groups[:-1]]
        return b"".join([*pages, self._write_page(groups[-1], end)])

    def _write_page(self, packets: list[bytes], end: int | None = None) -> bytes:
        self._position += len(packets) * _PACKET_SAMPLES
        return self._pages.write(packets, self._position if end is None else end, 0 if end is None else _LAST)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, self._pre_skip, PLAYED_RATE, 0, 0)
        tags = b"OpusTags" + struct.pack("<I", len(_VENDOR)) + _VENDOR + struct.pack("<I", 0)
        return self._pages.write([head], 0, _FIRST) + self._pages.write([tags], 0)


class Pages:
    """The pages of one logical stream (RFC 3533, 6)."""

    def __init__(self, serial: int) -> None:
        self._serial, self._number = serial, 0

    def write(self, packets: list[bytes], position: int, flags: int = 0) -> bytes:
        """A page of whole packets, at most 255 segments; `position` is that of the last sample that ends in it."""
        lacing = b"".join(_lace(packet) for packet in packets)
        fields = struct.pack("<BBqIII", 0, flags, position, self._serial, self._number, 0)
        page = b"OggS" + fields + bytes([len(lacing)]) + lacing + b"".join(packets)
        self._number += 1
        return page[:22] + struct.pack("<I", checksum(page)) + page[26:]


def checksum(page: bytes) -> int:
    """Ogg's CRC-32 (RFC 3533, 6): zlib's polynomial with the bits in the other order, from 0 and not inverted.

    Mirroring the bits going in and coming out makes the one of the other, at C's speed.
    """
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_MIRRORED), "big")


def _lace(packet: bytes) -> bytes:
    return b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255])


def _group(packets: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Packets by page: as many as have room for their segments."""
    group: list[bytes] = []
    segments = 0
    for packet in packets:
        needed = len(packet) // 255 + 1
        if segments + needed > _MOST_SEGMENTS:
            yield group
            group, segments = [], 0
        group.append(packet)
        segments += needed
    if group:
        yield group
