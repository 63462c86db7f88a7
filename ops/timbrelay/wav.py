"""A WAV file that is valid at every moment: what has been written so far can always be played."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from timbrelay.errors import OpsError
from timbrelay.events import BYTES_PER_SAMPLE

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_BITS = 8 * BYTES_PER_SAMPLE
_PCM = 1
_MONO = 1


def make_header(sample_rate: int, data_bytes: int) -> bytes:
    """The 44 bytes before mono 16-bit PCM (Microsoft and IBM, "Multimedia Programming Interface", 1991)."""
    return _HEADER.pack(
        *(b"RIFF", _HEADER.size - 8 + data_bytes, b"WAVE"),
        *(b"fmt ", 16, _PCM, _MONO, sample_rate, sample_rate * BYTES_PER_SAMPLE, BYTES_PER_SAMPLE, _BITS),
        *(b"data", data_bytes),
    )


def check_writable(path: Path) -> None:
    """Raises OpsError when a file there could not be written: better known before the work than after it."""
    # `os.path` answers False where `Path` raises: for what lies in a folder that may not be looked into.
    folder = os.path.dirname(path) or "."  # noqa: PTH120
    if os.path.isdir(path):  # noqa: PTH112
        reason = "is a folder"
    elif not os.path.isdir(folder):  # noqa: PTH112
        reason = f"cannot be written (there is no folder {folder} that you may enter)"
    elif os.access(path if os.path.exists(path) else folder, os.W_OK):  # noqa: PTH110
        return
    else:
        reason = "cannot be written (permission denied)"
    raise OpsError(f"{path} {reason}; choose another file with --output.")


class WavWriter:
    """Appends mono 16-bit PCM and keeps the header true after each piece."""

    def __init__(self, path: Path, sample_rate: int) -> None:
        self.path = path
        self.sample_rate = sample_rate
        self._bytes = 0
        self._file: io.FileIO | None = None

    @property
    def seconds(self) -> float:
        """How much audio it holds."""
        return self._bytes / BYTES_PER_SAMPLE / self.sample_rate

    def write(self, pcm: bytes) -> None:
        """Raises OpsError when the file system does not take it; the file stays valid.

        The first piece makes the file, or replaces an older one: where nothing is said nothing is lost.
        """
        try:
            self._file = self._file or io.FileIO(self.path, "wb")
            self._file.seek(_HEADER.size + self._bytes)
            self._file.write(pcm)
            self._bytes += len(pcm)
            self._file.seek(0)
            self._file.write(make_header(self.sample_rate, self._bytes))
        except OSError as error:
            raise self._explain(error) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _explain(self, error: OSError) -> OpsError:
        return OpsError(f"{self.path} cannot be written ({error.strerror}); choose another file with --output.")
