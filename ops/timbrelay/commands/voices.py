"""`timbrelay enroll`, `timbrelay say` and `timbrelay voices`: talk to a relay that runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from timbrelay.client import Client, Voice
from timbrelay.console import say, show_progress
from timbrelay.enrolment import STATEMENT, enroll, read_recording, require_consent
from timbrelay.environment import Environment
from timbrelay.errors import OpsError
from timbrelay.interruption import Interruption
from timbrelay.keys import with_local_key
from timbrelay.speaking import Spoken, speak
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.servers import Servers
from timbrelay.text_input import check_text, is_typed, read_pieces
from timbrelay.wav import check_writable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Door:
    """Which relay to talk to, with which key."""

    environment: Environment
    url: str
    """Empty: the relay of the local stack."""

    async def use(self, act: Callable[[Client], Awaitable[T]]) -> T:
        """What `act` gives. Raises OpsError when there is no relay to talk to, or no key for it."""
        folder = DataFolder(self.environment.home)
        note = None if self.url else folder.note()
        url = note.relay_url if note else self.url
        if not url:
            raise OpsError("No stack is running here; start one with `./dev up`, or name a relay with --url.")

        async def act_with(key: str) -> T:
            async with Client(url, key) as client:
                return await act(client)

        if self.environment.api_key:
            return await act_with(self.environment.api_key)
        if note is None:
            raise OpsError("Set TIMBRELAY_API_KEY to the key that this relay's operator gave you.")
        servers = Servers(note.database_url, note.database_owner_url, note.redis_url, None, None)
        return await with_local_key(folder, servers, act_with)


def run_enroll(door: Door, interruption: Interruption, path: Path, name: str, consent: bool) -> None:
    """Enrols a recording and prints the voice's id."""
    recording = read_recording(path)
    require_consent(consent)

    async def act(client: Client) -> Voice:
        return await enroll(client, name or path.stem, recording, path.name, STATEMENT)

    with show_progress(f"Enrolling {path}"):
        voice = interruption.run(door.use(act))
    say(voice.id)


def run_say(door: Door, interruption: Interruption, text: str, voice: str, output: Path) -> None:
    """Speaks a text into a WAV file."""
    check_text(text)
    check_writable(output)
    with show_progress("Speaking") as bar:
        if is_typed(text):
            bar.hide("Type what to say; Ctrl-D ends it.")

        async def act(client: Client) -> Spoken:
            return await speak(client, voice, read_pieces(text), output, bar)

        spoken = interruption.run(door.use(act))
    say(f"{spoken.audio_s:.1f} s of audio, the first sound after {spoken.first_audio_s:.2f} s: {output}")


def run_list(door: Door, interruption: Interruption) -> None:
    """Prints the tenant's voices, one a line: id, state, name."""

    async def act(client: Client) -> list[Voice]:
        return await client.voices()

    for voice in interruption.run(door.use(act)):
        say(f"{voice.id}  {voice.state:8s}{voice.name}")
