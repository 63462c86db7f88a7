"""Files that hold what gives access: read only when nobody else can, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

SIZE_LIMIT = 16 * 1024


def read_private(path: Path, others: int = 0o077) -> str:
    """The ASCII text of a file of at most 16 KiB.

    Raises OSError, with the fix for a file whose mode has one of the bits `others`, which let somebody else read it.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & others:
            raise PermissionError(f"others can read it (mode {mode:04o}): run `chmod 600 {path}`")
        content = file.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise OSError(f"it is larger than {SIZE_LIMIT} bytes")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        # That error holds all that was read.
        raise OSError("it is not plain text") from None


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that stays its owner's; on the disk, and not only in its cache, when this returns."""
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            _leave_to_owner(file.fileno(), path)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _leave_to_owner(handle: int, path: Path) -> None:
    """A file that root rewrites must still be read by the service."""
    with contextlib.suppress(FileNotFoundError):
        owner = path.stat()
        if owner.st_uid != os.geteuid():
            os.fchown(handle, owner.st_uid, owner.st_gid)
