"""`timbrelay bench`: what listeners get from the local stack, measured."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from timbrelay.client import Client
from timbrelay.console import Bar, say, show_progress
from timbrelay.enrolment import SYNTHETIC_STATEMENT, default_reference, ensure_voice
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault
from timbrelay.interruption import Interruption
from timbrelay.keys import with_local_key
from timbrelay.load import Tally, percentile, run_users
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.local import Options, Stack, use_stack
from timbrelay.watching import run_watched

MAX_USERS = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    users: tuple[int, ...]
    seconds: float
    json: Path | None
    options: Options

    @classmethod
    def parse(cls, users: str, seconds: float, json: Path | None, options: Options) -> Plan:
        """Raises UsageFault for anything but numbers of users with commas between them."""
        try:
            numbers = tuple(int(number) for number in users.split(","))
        except ValueError as error:
            raise UsageFault(f"--users takes numbers with commas, such as 1,10; not {users!r}.") from error
        if not all(1 <= number <= MAX_USERS for number in numbers):
            raise UsageFault(f"--users takes numbers from 1 to {MAX_USERS}.")
        return cls(numbers, seconds, json, options)


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one run; times in milliseconds."""

    users: int
    seconds: float
    utterances: int
    first_audio_p50_ms: float
    first_audio_p95_ms: float
    underruns: int
    underrun_ms: float
    real_time_factor: float
    """What a second of audio took, from a sentence's hand-over to its last chunk."""

    errors: dict[str, int]

    @classmethod
    def of(cls, users: int, seconds: float, tally: Tally) -> Result:
        return cls(
            users=users,
            seconds=seconds,
            utterances=len(tally.first_audio_s),
            first_audio_p50_ms=round(percentile(tally.first_audio_s, 0.50) * 1000, 1),
            first_audio_p95_ms=round(percentile(tally.first_audio_s, 0.95) * 1000, 1),
            underruns=tally.underruns,
            underrun_ms=round(tally.silence_s * 1000, 1),
            real_time_factor=round(tally.synthesis_s / tally.audio_s, 3) if tally.audio_s else 0.0,
            errors=tally.errors,
        )


def run(environment: Environment, interruption: Interruption, plan: Plan) -> None:
    """Prints a table. Raises OpsError when something failed or nobody heard anything."""
    with (
        show_progress("Starting") as bar,
        use_stack(environment, plan.options, bar.step, lambda: interruption.hurry) as stack,
    ):
        results = interruption.run(run_watched(stack.check, _measure(environment, stack, plan, bar)))
    machine = describe_machine()
    print_table(machine, results)
    if plan.json:
        write_figures(plan.json, machine, results)
    if not all(result.utterances for result in results):
        raise OpsError("In at least one run nobody heard anything.")


async def _measure(environment: Environment, stack: Stack, plan: Plan, bar: Bar) -> list[Result]:
    folder = DataFolder(environment.home)
    reference = default_reference(environment)

    async def measure(key: str) -> list[Result]:
        async with Client(stack.note.relay_url, key) as client:
            voice = await ensure_voice(client, reference, SYNTHETIC_STATEMENT, stack.allow_enrolment, bar)
            return [await _run_once(client, voice.id, users, plan.seconds, bar) for users in plan.users]

    return await with_local_key(folder, stack.servers, measure)


async def _run_once(client: Client, voice: str, users: int, seconds: float, bar: Bar) -> Result:
    bar.step(f"{users} listening for {seconds:.0f} s")
    listening = asyncio.create_task(run_users(client, voice, users, seconds))
    began = time.monotonic()
    try:
        while not listening.done():
            bar.advance_to(min(time.monotonic() - began, seconds), seconds)
            await asyncio.wait({listening}, timeout=0.2)
        return Result.of(users, seconds, listening.result())
    finally:
        listening.cancel()
        await asyncio.wait({listening})


def describe_machine() -> str:
    """The processor's name and how many of it this process may use."""
    names = []
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def print_table(machine: str, results: list[Result]) -> None:
    """Prints the figures for people."""
    say(f"On {machine}:")
    say("users  utterances  first audio p50     p95  underruns    silence  real-time factor  errors")
    for result in results:
        errors = ", ".join(f"{code} {count}" for code, count in sorted(result.errors.items())) or "none"
        say(
            f"{result.users:5d}  {result.utterances:10d}  {result.first_audio_p50_ms:12.0f} ms"
            f"  {result.first_audio_p95_ms:4.0f} ms  {result.underruns:9d}  {result.underrun_ms:6.0f} ms"
            f"  {result.real_time_factor:16.2f}  {errors}"
        )


def write_figures(path: Path, machine: str, results: list[Result]) -> None:
    """Writes the figures for programs. Raises OpsError when the file cannot be written."""
    figures = {"machine": machine, "runs": [asdict(result) for result in results]}
    try:
        path.write_text(json.dumps(figures, indent=2) + "\n")
    except OSError as error:
        raise OpsError(f"{path} cannot be written ({error.strerror}); choose another file with --json.") from error
