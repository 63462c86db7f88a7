"""docs/api.md: its examples work in the order in which they stand, and its table has every error."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relay.api.problems import TITLES
from tests.conftest import RunningStack, StartStack, Tenant
from tests.relay.api.conftest import start_relay

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "api.md").read_text()


@pytest.fixture
def stack(start_stack: StartStack) -> RunningStack:
    """A relay that takes whole recordings."""
    return start_relay(start_stack, max_recording_bytes=4 << 20)


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("bash"), reason="the examples need curl and bash")
async def test_the_examples_work_as_they_stand(stack: RunningStack, acme: Tenant, tmp_path: Path) -> None:
    """Without a worker the voice stays pending; all else is as a reader would see it."""
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL))
    variables = {
        "URL": stack.relay_url,
        "KEY": acme.key,
        "RECORDING": str(ROOT / "samples" / "reference-low.wav"),
        "PATH": "/usr/bin:/bin:/usr/local/bin",
    }
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", script], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"receipt":"ey' in done.stdout
    assert (tmp_path / "voice.zip").read_bytes()[:2] == b"PK"


def test_the_table_has_every_error() -> None:
    """No code without its line, no line without its code."""
    rows = [line.split("|")[1] for line in GUIDE.splitlines() if re.match(r"\| `.*\| [45]\d\d \|", line)]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(TITLES)
