"""Keys are rotated under load: relay, worker and Celery go on, and what is enrolled meanwhile speaks, too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from storage.encryption.providers.local import read_keys
from storage.private_files import write_private
from storage.settings import Settings
from tests.system.conftest import MakeSpeaker, Speaker

TEXT = "The quick brown fox is here."


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """As usual, but the root key lies in the file that the stack's processes are given."""
    write_private(tmp_path / "root.key", settings.root_key.get_secret_value() + "\n")
    return settings.model_copy(update={"root_key": SecretStr(""), "root_key_file": tmp_path / "root.key"})


async def test_speech_and_enrolment_go_on_while_everything_is_rotated(
    start_stack: Callable[..., Any],
    make_speaker: MakeSpeaker,
    settings: Settings,
    tmp_path: Path,
    clean_variables: dict[str, str],
) -> None:
    """Two rotations with the old keys' end, beside a voice that speaks and tenants that enrol their first voice.

    Nothing fails, no process is restarted, and a worker that starts afterwards finds everything.
    """
    stack = start_stack(idle_timeout_s=60)
    before = stack.supervisor.pids()
    speaker = await make_speaker(stack, "acme", "low")
    expected = (await speaker.speak(TEXT)).pcm
    over = asyncio.Event()

    async def rotate() -> None:
        for _ in range(2):
            await _timbrelay(settings, tmp_path, clean_variables, "keys", "rotate", "--all", "--destroy-old")
        over.set()

    async def speak() -> int:
        spoken = 0
        while not over.is_set() or not spoken:
            assert (await speaker.speak(TEXT)).pcm == expected
            spoken += 1
        return spoken

    async def enrol() -> list[Speaker]:
        made: list[Speaker] = []
        while not over.is_set() or not made:
            made.append(await make_speaker(stack, f"tenant {len(made)}", "high"))
        return made

    _, spoken, enrolled = await asyncio.gather(rotate(), speak(), enrol())
    assert spoken
    assert stack.supervisor.pids() == before
    assert len(read_keys(tmp_path / "root.key")) == 1
    stack.kill("worker")
    stack.start("worker")
    stack.wait_ready()
    for one in (speaker, *enrolled):
        assert (await one.speak(TEXT)).pcm


async def _timbrelay(settings: Settings, folder: Path, variables: dict[str, str], *arguments: str) -> None:
    given = {
        **variables,
        "TIMBRELAY_HOME": str(folder / "home"),
        "TIMBRELAY_ROOT_KEY_FILE": str(settings.root_key_file),
        "DATABASE_URL": settings.database_url,
        "DATABASE_OWNER_URL": settings.owner_url,
        "REDIS_URL": settings.redis_url,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "timbrelay", *arguments), env=given, cwd=folder, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
