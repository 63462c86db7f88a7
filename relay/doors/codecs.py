"""Codecs are loaded beside the event loop, before anybody waits for a chunk in them."""

from __future__ import annotations

from relay.audio.encoding import load_codec
from relay.doors.face import Face
from relay.speaking.commands import Command, Open, Resume


async def load_codec_for(face: Face, command: Command) -> None:
    """What the face will need for a context, if the command begins one; to be awaited before it is followed."""
    if isinstance(command, Open | Resume) and (sound := face.sound_of(command)) is not None:
        format, speed = sound
        await load_codec(format, speed=speed)
