"""The process that decodes: what it is given, what it may do, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import wait_until
from tests.worker.recordings import made, sample
from worker.enrolment import decoding
from worker.enrolment.confinement import CPU_S, MEMORY_BYTES
from worker.enrolment.decoding import COMMAND, ENVIRONMENT, decode
from worker.enrolment.exchange import Answer, ask
from worker.errors import RecordingError

MEBIBYTE = 1024 * 1024
CONFINED = "from worker.enrolment.confinement import confine, seal\nconfine()\n"


def run(program: str, data: bytes = b"", *, most_bytes: int = MEBIBYTE, timeout_s: float = 30.0) -> Answer:
    command = (sys.executable, "-I", "-B", "-c", program)
    return ask(command, data, environment=ENVIRONMENT, most_bytes=most_bytes, timeout_s=timeout_s)


def decode_with(monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float = 30.0) -> RecordingError:
    """The error when the decoder is another program."""
    monkeypatch.setattr(decoding, "COMMAND", (sys.executable, "-I", "-B", "-c", program))
    with pytest.raises(RecordingError) as caught:
        decode(sample("WAV", "PCM_16"), timeout_s=timeout_s)
    return caught.value


def test_an_exchange_carries_more_than_a_pipe_holds() -> None:
    """What a child writes while it is still being written to comes back whole."""
    data = np.random.default_rng(1).bytes(3 * MEBIBYTE)
    echo = "import sys\nwhile piece := sys.stdin.buffer.read(100_000): sys.stdout.buffer.write(piece)"
    assert run(echo, data, most_bytes=len(data)) == Answer(data, 0)


def test_an_exchange_stops_a_child_that_writes_too_much() -> None:
    """Output over the bound ends the child; no more than the bound is kept."""
    answer = run("while True: print('x' * 1000)", most_bytes=10_000)
    assert answer.overflowed
    assert (len(answer.output), answer.status) == (10_000, -signal.SIGKILL)


@pytest.mark.parametrize(
    "program",
    ["time.sleep(600)", "os.close(1)\ntime.sleep(600)", "if os.fork() == 0: note(); time.sleep(600)"],
    ids=["sleeps", "closes its output", "leaves a child"],
)
def test_an_exchange_ends_in_time(program: str, tmp_path: Path) -> None:
    """A child that does not end is killed with all that it started, though it reads nothing of what it is sent."""
    number = tmp_path / "number"
    noting = f"import os, time\ndef note(): open({str(number)!r}, 'w').write(str(os.getpid()))\nnote()\n"
    assert run(noting + program, bytes(MEBIBYTE), timeout_s=1).late
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(int(number.read_text()))
        assert select.select([handle], [], [], 10)[0], "it lives"
        os.close(handle)


def test_a_child_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder's environment holds three settings of libraries, and nothing of ours."""
    monkeypatch.setenv("TIMBRELAY_ROOT_KEY", "secret")
    told = run("import os\nprint(*sorted(os.environ))").output.decode().split()
    assert set(told) - {"LC_CTYPE"} == {"LC_ALL", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}


def test_a_child_has_no_file_but_its_pipes(tmp_path: Path) -> None:
    """What the worker has open, its database among it, is not open in the decoder."""
    with (tmp_path / "secret").open("w") as file:
        file.write("secret")
        listed = run("import os\nprint(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')[:4]))")
    assert "secret" not in listed.output.decode()


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/hostname')",
        "import_module('wave')",
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', 80))",
        "os.pipe()",
        "open(PATH, 'w')",
    ],
)
def test_a_sealed_process_opens_nothing(attempt: str, tmp_path: Path) -> None:
    """Once it is sealed, a process opens no file, no socket and no pipe, not even as root."""
    program = (
        f"import os, socket\nfrom importlib import import_module\nPATH = {str(tmp_path / 'x')!r}\n"
        f"{CONFINED}seal()\ntry:\n    {attempt}\nexcept OSError as error:\n    print(error.errno)"
    )
    assert run(program).output == b"24\n"
    assert not list(tmp_path.iterdir())


def test_a_confined_process_writes_no_file(tmp_path: Path) -> None:
    """Before it is sealed a file can be opened, but not a byte be written into it."""
    path = tmp_path / "x"
    program = (
        f"{CONFINED}try:\n    with open({str(path)!r}, 'wb', 0) as file: file.write(b'x')\nexcept OSError: print('no')"
    )
    assert run(program).output == b"no\n"
    assert path.read_bytes() == b""


def test_a_confined_process_has_bounds() -> None:
    """Memory, time and cores are bounded, and what was bounded tighter before stays so."""
    assert run(f"{CONFINED}try:\n    bytes(1 << 30)\nexcept MemoryError: print('no')").output == b"no\n"
    assert run(f"import resource\n{CONFINED}print(resource.getrlimit(resource.RLIMIT_CORE))").output == b"(0, 0)\n"
    tight = f"import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 2))\n{CONFINED}while True: pass"
    assert run(tight).status == -signal.SIGXCPU


def test_a_confined_process_is_not_dumped() -> None:
    """Nobody reads the decoder's memory, and it ends with who started it."""
    asked = "print(*(ctypes.CDLL(None).prctl(flag, 0, 0, 0, 0) for flag in (3, 39)))"
    assert run(f"import ctypes\n{CONFINED}{asked}").output == b"0 1\n"


def test_the_decoder_confines_itself_before_it_reads() -> None:
    """While it waits for its first byte, the real decoder is in its bounds already."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT, cwd="/") as child:
        assert child.stdin is not None
        limits = Path("/proc", str(child.pid), "limits")
        wait_until(lambda: re.search(r"Max open files +64 +64", limits.read_text()) is not None)
        found = limits.read_text()
        child.stdin.close()
    for name, value in (("file size", 0), ("core file size", 0), ("cpu time", CPU_S), ("address space", MEMORY_BYTES)):
        assert re.search(rf"Max {name} +{value} ", found), name


@pytest.mark.parametrize("name", ["sample", "container"])
def test_the_decoder_is_sealed_when_it_decodes(name: str) -> None:
    """Whatever a file would make the real decoder do, it cannot open anything by then."""
    attempt = "lambda sound: print(open('/etc/hostname').read())"
    program = f"import sys\nfrom worker.enrolment import decoder\ndecoder.gather = {attempt}\nsys.exit(decoder.main())"
    answer = run(program, sample("WAV", "PCM_16") if name == "sample" else made("webm"))
    assert (answer.output, answer.status) == (b"", 1)


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("import time\ntime.sleep(600)", "enrolment_failed", "within 1 s"),
        ("import os\nos.kill(os.getpid(), 9)", "enrolment_failed", "killed"),
        ("import os\nos.abort()", "recording_not_audio", "fell"),
        ("import os\nos.kill(os.getpid(), 24)", "recording_not_audio", "of a processor"),
        ("while True: print('x' * 1000)", "recording_not_audio", "more than it says"),
    ],
)
def test_a_decoder_that_falls_leaves_a_reason(
    monkeypatch: pytest.MonkeyPatch, program: str, code: str, words: str
) -> None:
    """Killed, late, aborted, out of time or babbling: the recording is refused and the worker goes on."""
    error = decode_with(monkeypatch, program, 1.0 if "sleep" in program else 30.0)
    assert error.code == code
    assert words in error.message
    monkeypatch.undo()
    assert len(decode(sample("WAV", "PCM_16")).samples)


def test_no_decoder_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started, the enrolment fails, and may be tried again."""
    monkeypatch.setattr(decoding, "COMMAND", ("/nowhere/python", *COMMAND[1:]))
    with pytest.raises(RecordingError, match="enrol it again") as caught:
        decode(sample("WAV", "PCM_16"))
    assert caught.value.code == "enrolment_failed"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b"[" * 100_000,
        b'"code"\n',
        b'{"code": "root", "message": "x"}\n',
        b'{"code": "recording_x"}\n',
        b'{"source_format": "WAV", "source_rate": 1e999, "source_channels": 1, "flat_share": 0}\n',
        b'{"source_format": "WAV", "source_rate": 1, "source_channels": 1, "flat_share": 0}\nabc',
        b'{"source_format": "WAV", "source_rate": 1, "source_channels": 1, "flat_share": 0}\n\0\0\xc0\x7f',
        b'{"source_format": "WAV", "source_rate": 1, "source_channels": 1, "flat_share": 0}\n\0\0\0\x40',
    ],
)
def test_a_decoder_is_not_trusted(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """An answer that a decoder of ours would not give is damage."""
    error = decode_with(monkeypatch, f"import sys\nsys.stdout.buffer.write({answer!r})")
    assert error.code == "recording_not_audio"
    assert "no answer" in error.message
