"""The real client SDKs against a real stack: one test a family of tests/clients, which runs in its own environment."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.stack import ClientStack, run_client_stack
from timbrelay.stack.log import tail
from timbrelay.stack.servers import Servers

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "clients"
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
REQUIRED = "TIMBRELAY_CLIENTS_REQUIRED" in os.environ
"""Set by `./dev test`, which installs the environment: without it nothing was tested, and that is an error there."""
ARGUMENTS = shlex.split(os.environ.get("TIMBRELAY_CLIENTS_ARGUMENTS", ""))
"""What a developer adds for pytest, such as `-k wrong_key`."""
FAMILIES = sorted({path.parent.name for path in CLIENTS.glob("*/test_*.py")})
FAMILY_TIMEOUT_S = 480
"""Four times of what the longest takes on two cores that others use as well."""
START_TIMEOUT_S = 90
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="module")
def client_stack(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientStack]:
    """For all families; started for the first of them that can be run."""
    if not PYTHON.exists() and not REQUIRED:
        pytest.skip("the client SDKs are not installed: `./dev test` does it")
    assert PYTHON.exists(), f"{PYTHON} is not there, although `./dev test` installs it"
    with run_client_stack(servers, clean_variables, tmp_path_factory.mktemp("clients")) as stack:
        yield stack


def _variables(stack: ClientStack, home: Path) -> dict[str, str]:
    """No key, proxy or configuration of whoever runs the tests: just where the stack is, and whom to trust."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    # From the start: there are clients that make their TLS context when they are imported.
    trusted = {"SSL_CERT_FILE": str(stack.authority), "REQUESTS_CA_BUNDLE": str(stack.authority)}
    return {**kept, **OFFLINE, **trusted, "HOME": str(home), "TIMBRELAY_TEST_STACK": str(stack.coordinates)}


@pytest.mark.timeout(FAMILY_TIMEOUT_S + START_TIMEOUT_S)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_clients_of_a_family_work_unmodified(family: str, client_stack: ClientStack, tmp_path: Path) -> None:
    """Each SDK does what it does with its own service, and was told nothing but another base URL."""
    command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", f"tests/clients/{family}", *ARGUMENTS]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=_variables(client_stack, tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FAMILY_TIMEOUT_S,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace") if isinstance(expired.stdout, bytes) else ""
        pytest.fail(f"not done within {FAMILY_TIMEOUT_S} s\n{output}", pytrace=False)
    took_s = time.monotonic() - begun
    if done.returncode:
        logs = "\n".join(tail(stack.log, 20) for stack in (client_stack.plain, client_stack.secure))
        pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n== the stack's last words\n{logs}", pytrace=False)
    # Seen with `-rP` or `-s`: how long each family takes, and which of its tests.
    print(done.stdout, f"{family}: {took_s:.1f} s", sep="\n")
