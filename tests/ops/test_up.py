"""The whole local stack as a user runs it: `up`, and the commands that talk to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.databases import find_room
from timbrelay.stack.folder import DataFolder, StackNote
from timbrelay.stack.local import is_ready

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "samples" / "reference-high.wav"
DEADLINE_S = 90.0


@dataclass(frozen=True, slots=True)
class Up:
    """A stack that `timbrelay up` runs in a data folder of its own."""

    process: subprocess.Popen[bytes]
    folder: DataFolder

    @property
    def note(self) -> StackNote:
        note = self.folder.note()
        assert note is not None
        return note

    def call(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs another command beside it."""
        return subprocess.run(
            [sys.executable, "-m", "timbrelay", *arguments],
            env=variables(self.folder.path),
            input=text or "",
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )


def variables(home: Path) -> dict[str, str]:
    ours = ("TIMBRELAY_", "DATABASE_", "REDIS_URL")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
        "TIMBRELAY_HOME": str(home)
    }


def processes_of(home: Path) -> list[int]:
    """Every process that was started for this data folder."""
    marker = f"TIMBRELAY_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def start_up(*arguments: str, **more: str) -> Iterator[Up]:
    home = Path(tempfile.mkdtemp(prefix="timbrelay-test-", dir=find_room()))
    command = [sys.executable, "-m", "timbrelay", "up", "--port", "0", *arguments]
    process = subprocess.Popen(command, env=variables(home) | more, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    up = Up(process, DataFolder(home))
    try:
        wait_until(lambda: up.folder.note() or process.poll() is not None)
        yield up
    finally:
        process.kill()
        process.wait()
        wait_until(lambda: not processes_of(home))
        up.folder.remove_runtime()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    # A server's certificate in the shell of whoever tries the product out is not for the local stack.
    with start_up(TIMBRELAY_RELAY_TLS_CERTIFICATE="server.pem", TIMBRELAY_RELAY_TLS_KEY="server.key") as running:
        yield running


@pytest.fixture(scope="module")
def voice(up: Up) -> str:
    """The id of a voice that `enroll` has made."""
    result = up.call("enroll", str(REFERENCE), "--name", "somebody", "--consent")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_up_says_where_everything_is(up: Up) -> None:
    """The running stack is noted with its addresses, and all of it is ready."""
    assert up.note.relay_url.startswith("http://127.0.0.1:")
    assert set(up.note.metrics_urls) == {"relay", "worker"}
    assert all(is_ready(url) for url in up.note.metrics_urls.values())
    assert set(up.note.pids) == {"postgres", "valkey", "relay", "worker", "celery"}


def test_a_second_stack_is_refused(up: Up) -> None:
    """A second `up` on the same data folder is refused by name of the first one's process."""
    result = up.call("up")
    assert result.returncode == 1
    assert f"is in use by another stack (process {up.process.pid})" in result.stderr


def test_what_was_enrolled_can_be_listed(up: Up, voice: str) -> None:
    """A voice that was enrolled is ready and has its name."""
    assert f"{voice}  ready   somebody" in up.call("voices").stdout


def test_what_was_said_is_in_the_file(up: Up, voice: str, tmp_path: Path) -> None:
    """`say` speaks standard input into a WAV file of the relay's rate."""
    path = tmp_path / "said.wav"
    result = up.call("say", "-", "--voice", voice, "--output", str(path), text="Good morning. How are you?")
    assert result.returncode == 0, result.stderr
    with wave.open(str(path)) as file:
        assert file.getframerate() == 24_000
        assert file.getnframes() > 12_000


def test_a_voice_that_is_not_there_is_a_sentence(up: Up, tmp_path: Path) -> None:
    """An unknown voice ends `say` with the relay's sentence and exit code 1."""
    path = tmp_path / "none.wav"
    result = up.call("say", "Hello.", "--voice", "00000000-0000-4000-8000-000000000000", "--output", str(path))
    assert result.returncode == 1
    assert "unknown_voice" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_recording_that_is_none_is_a_sentence(up: Up, tmp_path: Path) -> None:
    """What is not audio ends `enroll` with the reason and exit code 1."""
    (tmp_path / "text.wav").write_text("This is not audio. " * 100)
    result = up.call("enroll", str(tmp_path / "text.wav"), "--consent")
    assert result.returncode == 1
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


def test_the_demo_uses_the_running_stack(up: Up, tmp_path: Path) -> None:
    """`demo` speaks through the running stack, and enrols the same recording once only."""
    path = tmp_path / "demo.wav"
    for times in range(2):
        result = up.call("demo", "--text", "It works.", "--output", str(path))
        assert result.returncode == 0, result.stderr
        assert "Starting Postgres" not in result.stderr
        assert ("is enrolled already" in result.stdout) == bool(times)
        assert "real-time factor" in result.stdout
    other_port = up.call("demo", "--port", "1", "--output", str(path))
    assert other_port.returncode == 2
    assert "A stack already runs at" in other_port.stderr


def test_a_local_key_that_is_not_known_is_replaced(up: Up) -> None:
    """When the database was begun anew, the commands make themselves another key."""
    kept = up.folder.path / "demo.key"
    kept.write_text("tr_of_another_database\n")
    assert up.call("voices").returncode == 0
    assert kept.read_text() != "tr_of_another_database\n"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_doctor_finds_a_healthy_stack(up: Up) -> None:
    """With everything running the doctor finds nothing to mend."""
    result = up.call("doctor")
    assert result.returncode == 0, result.stdout
    assert "failed" not in result.stdout
    assert "is ready" in result.stdout


def test_a_relay_that_was_killed_comes_back(up: Up) -> None:
    """A service that dies is started again, and the commands go on working."""
    os.kill(up.note.pids["relay"], signal.SIGKILL)
    wait_until(lambda: not is_ready(up.note.metrics_urls["relay"]))
    wait_until(lambda: is_ready(up.note.metrics_urls["relay"]))
    assert up.call("voices").returncode == 0


def test_a_signal_ends_everything() -> None:
    """SIGTERM ends the stack in order: exit code 130, no process, no note, no sockets."""
    with start_up("--workers", "2") as up:
        assert set(up.note.metrics_urls) == {"relay", "worker", "worker-2"}
        home = up.folder.path
        sockets = Path((home / "runtime").read_text())
        assert len(processes_of(home)) > 5
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(DEADLINE_S) == 130
        assert processes_of(home) == []
        assert not up.folder.note_file.exists()
        assert not sockets.exists()


def test_a_killed_supervisor_takes_everything_along() -> None:
    """After kill -9 of the supervisor nothing goes on, and its note counts for nothing."""
    with start_up() as up:
        up.process.kill()
        up.process.wait()
        assert up.folder.note() is None
        wait_until(lambda: not processes_of(up.folder.path))
