"""From a recording to a voice, through the relay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from timbrelay.client import Client, Voice
from timbrelay.console import Bar, is_interactive
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault

MAX_RECORDING_BYTES = 64 << 20
"""More than any relay takes: what is read into memory has a bound, the exact limit is the relay's."""

QUESTION = "Is this your voice, or do you have the person's consent? [y/N] "
STATEMENT = "The speaker has agreed that this recording is used to make speech in this voice."
STATEMENT_VERSION = "command-line-1"
SYNTHETIC_STATEMENT = "The recording is synthetic: it is the voice of no person."


def require_consent(given: bool) -> None:
    """Returns when there is consent: stated by --consent, or on being asked. Raises UsageFault otherwise."""
    if given:
        return
    if not is_interactive():
        raise UsageFault("A recording needs the speaker's consent: state it with --consent.")
    if input(QUESTION).strip().lower() not in ("y", "yes"):
        raise OpsError("Without the speaker's consent no voice is made.")


def read_recording(path: Path) -> bytes:
    """The file's content. Raises UsageFault when it cannot be read."""
    try:
        if not path.is_file():
            raise UsageFault(f"The recording {path} cannot be read ({_describe(path)}).")
        with path.open("rb") as file:
            content = file.read(MAX_RECORDING_BYTES + 1)
    except OSError as error:
        raise UsageFault(f"The recording {path} cannot be read ({error.strerror}).") from error
    if len(content) > MAX_RECORDING_BYTES:
        raise UsageFault(
            f"The recording {path} is over {MAX_RECORDING_BYTES >> 20} MiB; 5 to 10 s of speech are enough."
        )
    return content


def _describe(path: Path) -> str:
    if not path.exists():
        return "No such file or directory"
    return "Is a directory" if path.is_dir() else "It is not a regular file"


def default_reference(environment: Environment) -> Path:
    """The recording to begin with, before there is one of one's own: synthetic, the voice of no person."""
    return environment.root / "samples" / "reference-low.wav"


def fingerprint(recording: bytes) -> str:
    """A name for a recording that is the same whenever it is given: 12 hex digits of its SHA-256."""
    return hashlib.sha256(recording).hexdigest()[:12]


async def enroll(client: Client, name: str, recording: bytes, filename: str, statement: str) -> Voice:
    """Records the consent, uploads, and waits. Raises RelayError or VoiceFailed."""
    consent = await client.create_consent(name, statement, version=STATEMENT_VERSION)
    pending = await client.enroll(name, consent.id, recording, filename)
    return await client.wait_ready(pending.id)


async def ensure_voice(
    client: Client, path: Path, statement: str, allow_enrolment: Callable[[], None], bar: Bar
) -> Voice:
    """The voice of a recording, which is enrolled unless it is already; named for its content."""
    recording = read_recording(path)
    name = fingerprint(recording)
    synthetic = " (synthetic, the voice of no person)" if statement == SYNTHETIC_STATEMENT else ""
    if voice := await find_enrolled(client, name):
        bar.say(f"The voice of {path}{synthetic} is enrolled already.")
        return voice
    bar.step(f"Enrolling the voice of {path}{synthetic}")
    allow_enrolment()
    return await enroll(client, name, recording, path.name, statement)


async def find_enrolled(client: Client, name: str) -> Voice | None:
    """The voice of this name that is ready, if there is one."""
    return next(iter(await client.voices(name=name, state="ready")), None)
