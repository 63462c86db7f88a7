"""The command line: quick to answer, exit codes that mean something, never a traceback for a user's fault."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_S = 60.0
HEAVY = ("sqlalchemy", "alembic", "psycopg", "celery", "numpy", "onnxruntime", "uvicorn", "websockets", "httpx2")


def timbrelay(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TIMBRELAY_HOME": str(home), **variables}
    return subprocess.run(
        [sys.executable, "-m", "timbrelay", *arguments],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_help_does_not_load_the_product(tmp_path: Path) -> None:
    """`--help` answers without loading servers' clients, the model or the web."""
    script = "import sys; from timbrelay.cli import invoke; invoke(['--help']); print([*sys.modules], file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert "Keep the local stack running" in result.stdout
    loaded = {name.strip("[]', ").partition(".")[0] for name in result.stderr.split(",")}
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nonsense",), "No such command"),
        (("up", "--workers", "0"), "--workers"),
        (("up", "--port", "70000"), "--port"),
        (("bench", "--users", "many"), "--users takes numbers"),
        (("keys", "revoke", "nonsense"), "is not the id of a key"),
        (("demo", "--reference", "none.wav", "--consent"), "none.wav cannot be read"),
        (("demo", "--text", os.fsdecode(b"a\xff")), "not UTF-8"),
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    """What cannot be meant is refused with exit code 2 and a sentence, before anything is started."""
    result = timbrelay(*arguments, home=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "stack.log").exists()


def test_a_recording_without_consent_is_refused(tmp_path: Path) -> None:
    """Without a terminal to ask on, somebody's recording needs --consent."""
    (tmp_path / "somebody.wav").write_bytes(b"RIFF")
    for arguments in (("demo", "--reference", "somebody.wav"), ("enroll", "somebody.wav")):
        result = timbrelay(*arguments, home=tmp_path)
        assert result.returncode == 2
        assert result.stderr == "A recording needs the speaker's consent: state it with --consent.\n"


def test_without_a_stack_there_is_nobody_to_talk_to(tmp_path: Path) -> None:
    """`say`, `enroll` and `voices` say how to start a stack when none is running."""
    (tmp_path / "somebody.wav").write_bytes(b"RIFF")
    for arguments in (("say", "Hello.", "--voice", "x"), ("enroll", "somebody.wav", "--consent"), ("voices",)):
        result = timbrelay(*arguments, home=tmp_path)
        assert result.returncode == 1
        assert "No stack is running here; start one with `./dev up`" in result.stderr


def test_a_relay_elsewhere_needs_a_key(tmp_path: Path) -> None:
    """A relay named by --url is not talked to without its operator's key."""
    result = timbrelay("voices", "--url", "http://127.0.0.1:9", home=tmp_path)
    assert result.returncode == 1
    assert "Set TIMBRELAY_API_KEY" in result.stderr


def test_nobody_at_the_address_is_a_sentence(tmp_path: Path) -> None:
    """An address where nothing listens is reported as that."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = timbrelay("voices", "--url", url, home=tmp_path, TIMBRELAY_API_KEY="tr_x", http_proxy="http://127.0.0.1:9")
    assert result.returncode == 1
    assert result.stderr.startswith(f"No relay answers at {url}: ")


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """A port that another program has is refused with exit code 1, and nothing is left behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = timbrelay("up", "--port", str(port), home=tmp_path)
    assert result.returncode == 1
    assert f"Port {port} is in use; choose another with --port." in result.stderr
    assert not (tmp_path / "postgres").exists()


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    """A data folder that cannot be made is refused with exit code 1."""
    (tmp_path / "file").write_text("")
    result = timbrelay("up", home=tmp_path, TIMBRELAY_HOME=str(tmp_path / "file" / "home"))
    assert result.returncode == 1
    assert "Set TIMBRELAY_HOME to a folder that you can write." in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bundle_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    """A worker that cannot load its model ends the start with the reason, not with a traceback or a restart."""
    result = timbrelay("up", "--port", "0", home=tmp_path, TIMBRELAY_BUNDLE=str(tmp_path / "none"))
    assert result.returncode == 1
    assert "The worker ended with exit code 1 while starting: " in result.stderr
    assert "manifest.json cannot be read" in result.stderr
    assert not (tmp_path / "stack.json").exists()


def test_keys_are_made_and_revoked(tmp_path: Path) -> None:
    """A key is printed once with its id, and can be revoked once by that id."""
    made = timbrelay("keys", "create", "--tenant", "acme", home=tmp_path)
    assert made.returncode == 0, made.stderr
    key, key_id = (line.split()[-1] for line in made.stdout.splitlines())
    assert key.startswith("tr_")
    assert timbrelay("keys", "revoke", key_id, home=tmp_path).returncode == 0
    again = timbrelay("keys", "revoke", key_id, home=tmp_path)
    assert again.returncode == 2
    assert again.stderr == f"No key with the id {key_id} is in use.\n"
