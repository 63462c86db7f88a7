"""`timbrelay demo`: from nothing to a cloned voice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timbrelay.client import Client
from timbrelay.console import Bar, show_progress
from timbrelay.enrolment import (
    STATEMENT,
    SYNTHETIC_STATEMENT,
    default_reference,
    ensure_voice,
    read_recording,
    require_consent,
)
from timbrelay.environment import Environment
from timbrelay.interruption import Interruption
from timbrelay.keys import with_local_key
from timbrelay.player import PLAYERS, play
from timbrelay.speaking import Spoken, speak
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.local import Options, Stack, use_stack
from timbrelay.text_input import check_text, is_typed, read_pieces
from timbrelay.watching import run_watched
from timbrelay.wav import check_writable

PARAGRAPH = (
    "This voice was made from a few seconds of speech. Nothing you hear was ever recorded. The first sound leaves "
    "before the sentence is finished. When the voice is deleted, it is gone for good."
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the demo was asked to do."""

    reference: Path | None
    """None: the synthetic recording in `samples/`."""

    consent: bool
    text: str
    output: Path
    play: bool
    options: Options


def run(environment: Environment, interruption: Interruption, request: Request) -> None:
    """Raises OpsError with what went wrong."""
    check_text(request.text)
    check_writable(request.output)
    reference = request.reference or default_reference(environment)
    read_recording(reference)
    if request.reference:
        require_consent(request.consent)
    with (
        show_progress("Starting") as bar,
        use_stack(environment, request.options, bar.step, lambda: interruption.hurry) as stack,
    ):
        spoken = interruption.run(run_watched(stack.check, _clone_and_speak(environment, stack, request, bar)))
        bar.say(_summarise(spoken, request.output))
        if request.play:
            bar.step("Playing")
            if not play(environment, request.output):
                bar.say(f"None of {', '.join(PLAYERS)} is installed here to play it.")


async def _clone_and_speak(environment: Environment, stack: Stack, request: Request, bar: Bar) -> Spoken:
    reference = request.reference or default_reference(environment)
    statement = STATEMENT if request.reference else SYNTHETIC_STATEMENT

    async def act(key: str) -> Spoken:
        async with Client(stack.note.relay_url, key) as client:
            voice = await ensure_voice(client, reference, statement, stack.allow_enrolment, bar)
            if is_typed(request.text):
                bar.hide("Type what to say; Ctrl-D ends it.")
            else:
                bar.step("Speaking")
            return await speak(client, voice.id, read_pieces(request.text), request.output, bar)

    return await with_local_key(DataFolder(environment.home), stack.servers, act)


def _summarise(spoken: Spoken, output: Path) -> str:
    pieces = "piece" if spoken.sentences == 1 else "pieces"
    return (
        f"{spoken.sentences} {pieces}, {spoken.audio_s:.1f} s of audio in {spoken.wall_s:.1f} s "
        f"(real-time factor {spoken.wall_s / max(spoken.audio_s, 1e-3):.2f}), the first sound after "
        f"{spoken.first_audio_s:.2f} s: {output}"
    )
