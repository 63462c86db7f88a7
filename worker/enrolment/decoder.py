"""The program that decodes one upload: a file on its standard input, a line of JSON and samples on its output.

It is run as `python -I -m worker.enrolment.decoder`, confines itself before it reads a byte, and ends after one file.
Only the decoder's modules are imported here: starting it is part of every enrolment.

The line is `{"code", "message"}` for a file that is refused, else `{"source_format", "source_rate",
"source_channels", "flat_share"}`, and what follows are the samples, float32, little-endian, mono, at 16 kHz.
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager

from worker.enrolment.confinement import confine, seal
from worker.enrolment.file_kinds import Container, choose_container, refuse_damage
from worker.enrolment.gathering import Decoded, Sound, gather
from worker.errors import RecordingError

MOST_BYTES = 256 * 1024 * 1024
"""What is read of a file at the most, and a piece more; the limit that people meet is the caller's."""

_PIECE = 1 << 20


def main() -> int:
    """Decodes standard input to standard output; 0 also for a file that is refused."""
    confine()
    try:
        decoded = _decode(_read())
    except MemoryError:
        return _answer(refuse_damage("it takes more memory than a recording of a voice can need"))
    except RecordingError as error:
        return _answer(error)
    return _answer(decoded)


def _read() -> bytes:
    """Standard input to its end, piece by piece: a single read would claim the bound's memory at once."""
    pieces, left = [], MOST_BYTES
    while left > 0 and (piece := sys.stdin.buffer.read(_PIECE)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _decode(data: bytes) -> Decoded:
    container = choose_container(data)
    opened = _open(data, container)
    seal()
    with opened as sound:
        return gather(sound)


def _open(data: bytes, container: Container) -> AbstractContextManager[Sound]:
    """Imports what reads this kind of file: FFmpeg's libraries take twice as long as all the rest."""
    if container is Container.SOUND:
        from worker.enrolment.sound_files import open_sound

        return open_sound(data)
    from worker.enrolment.media_files import open_media

    return open_media(data, container)


def _answer(result: Decoded | RecordingError) -> int:
    head: dict[str, str | int | float]
    body = b""
    if isinstance(result, RecordingError):
        head = {"code": result.code, "message": result.message}
    else:
        head = {
            "source_format": result.source_format,
            "source_rate": result.source_rate,
            "source_channels": result.source_channels,
            "flat_share": result.flat_share,
        }
        body = result.samples.astype("<f4").tobytes()
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
