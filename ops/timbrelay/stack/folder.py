"""The data folder: its place, its lock, its keys and the note of what runs on it."""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from storage.private_files import write_private
from timbrelay.errors import FolderError

MIN_FREE_BYTES = 200 * 1024 * 1024
_RUNTIME_PREFIX = "timbrelay-"
_SOCKET_NAME_ROOM = 60
"""A socket's path may have 107 bytes; the longest name that we put into the folder needs far less than the rest."""


@dataclass(frozen=True, slots=True)
class StackNote:
    """What `stack.json` says about the running stack."""

    relay_url: str
    metrics_urls: dict[str, str]
    database_url: str
    database_owner_url: str
    redis_url: str
    root_key_file: str
    pids: dict[str, int]


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Paths in one data folder, and what is done with them."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "stack.log"

    @property
    def note_file(self) -> Path:
        return self.path / "stack.json"

    @property
    def root_key_file(self) -> Path:
        return self.path / "root.key"

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def valkey(self) -> Path:
        return self.path / "valkey"

    def prepare(self) -> None:
        """Makes the folder (mode 0700). Raises FolderError when it cannot be used."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.stat().st_uid != os.geteuid() and os.geteuid() != 0:
                raise FolderError(self.path, "belongs to another user", "Set TIMBRELAY_HOME to one of yours.")
            self.path.chmod(0o700)
            with tempfile.NamedTemporaryFile(dir=self.path) as probe:
                probe.write(b"\0" * 4096)
            self.log.touch(mode=0o600)
        except OSError as error:
            raise self.explain(error) from error
        if shutil.disk_usage(self.path).free < MIN_FREE_BYTES:
            raise self.explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def explain(self, error: OSError) -> FolderError:
        """The sentence for what the file system refused."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = f"Free at least {MIN_FREE_BYTES // 2**20} MB there, or set TIMBRELAY_HOME to a folder with room."
            return FolderError(self.path, "has no disk space left", fix)
        reason = f"cannot be written ({error.strerror})"
        return FolderError(self.path, reason, "Set TIMBRELAY_HOME to a folder that you can write.")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the folder for one stack. Raises FolderError when another one has it."""
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise self._in_use(file.name) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def is_running(self) -> bool:
        """Whether a stack holds the lock at this moment: a note alone may be left from a crash."""
        try:
            with (self.path / "lock").open("r") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def note(self) -> StackNote | None:
        """What runs on this folder and is ready; None when nothing is."""
        return self.last_note() if self.is_running() else None

    def last_note(self) -> StackNote | None:
        """What was noted last, by a stack that may be gone."""
        try:
            return StackNote(**json.loads(self.note_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write_note(self, note: StackNote) -> None:
        write_private(self.note_file, json.dumps(asdict(note), indent=2) + "\n")

    def ensure_root_key(self) -> Path:
        """The file with the key that wraps every voice's key: 32 random bytes in base64, made once."""
        if not self.root_key_file.exists():
            key = base64.b64encode(secrets.token_bytes(32)).decode()
            write_private(self.root_key_file, key + "\n")
        return self.root_key_file

    def make_runtime(self, base: Path) -> Path:
        """A new folder (mode 0700) for unix sockets, with a short path; the one that a killed stack left is removed."""
        self.remove_runtime()
        usable = base if len(str(base)) < _SOCKET_NAME_ROOM and os.access(base, os.W_OK) else Path("/tmp")  # noqa: S108
        made = tempfile.mkdtemp(prefix=_RUNTIME_PREFIX, dir=usable)
        write_private(self.path / "runtime", made)
        return Path(made)

    def remove_runtime(self) -> None:
        """Removes the sockets' folder of the last stack."""
        with contextlib.suppress(OSError):
            noted = Path((self.path / "runtime").read_text())
            if noted.name.startswith(_RUNTIME_PREFIX):
                shutil.rmtree(noted, ignore_errors=True)
            (self.path / "runtime").unlink()

    def _in_use(self, lock: str) -> FolderError:
        holder = Path(lock).read_text().strip()
        fix = "Stop that one, or set TIMBRELAY_HOME to another folder."
        return FolderError(self.path, f"is in use by another stack (process {holder or 'unknown'})", fix)
