"""`timbrelay bench`: what voice agents get from the local stack, and what that takes, measured."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timbrelay.benchmark import resources, stages
from timbrelay.benchmark.agents import Load, run_agents
from timbrelay.benchmark.baseline import Baseline, measure_baseline
from timbrelay.benchmark.conversation import cut_replies
from timbrelay.benchmark.doors.door import Site
from timbrelay.benchmark.doors.measuring import SOCKETS, Relay, Rounds, measure_doors, measure_idle_sockets
from timbrelay.benchmark.figures import Report, Result, Surroundings
from timbrelay.benchmark.machine import describe_machine, find_commit, today
from timbrelay.benchmark.profile import find_profiler, profiling
from timbrelay.benchmark.report import render_table, write_json, write_page
from timbrelay.benchmark.tally import Tally
from timbrelay.client import Client
from timbrelay.console import Bar, complain, say, show_progress
from timbrelay.enrolment import SYNTHETIC_STATEMENT, default_reference, ensure_voice
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault
from timbrelay.interruption import Interruption
from timbrelay.keys import with_local_key
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.local import Options, Stack, use_stack
from timbrelay.watching import run_watched

MAX_USERS = 500
PAGE = Path("docs") / "benchmarks.md"
_WARM_UP_S = 1.0
_PROFILED = ("relay", "worker")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    users: tuple[int, ...]
    seconds: float
    json: Path | None
    options: Options
    seed: int = 0
    beyond: bool = False
    """Whether to go on with more users than were held."""

    profile: bool = False
    record: bool = False
    doors: int = 4
    """How many rounds over all doors; none at 0."""

    @staticmethod
    def parse_users(users: str) -> tuple[int, ...]:
        """Raises UsageFault for anything but numbers of users with commas between them."""
        try:
            numbers = tuple(int(number) for number in users.split(","))
        except ValueError as error:
            raise UsageFault(f"--users takes numbers with commas, such as 1,10; not {users!r}.") from error
        if not all(1 <= number <= MAX_USERS for number in numbers):
            raise UsageFault(f"--users takes numbers from 1 to {MAX_USERS}.")
        return numbers

    @property
    def command(self) -> str:
        """As one types it to get the same again."""
        users = ",".join(map(str, self.users))
        return f"./dev bench --users {users} --seconds {self.seconds:g} --seed {self.seed}{' --beyond' * self.beyond}"


def run(environment: Environment, interruption: Interruption, plan: Plan) -> None:
    """Prints the figures and saves them. Raises OpsError when something failed or nobody heard anything."""
    profiler = find_profiler() if plan.profile else None
    folder = DataFolder(environment.home)
    with (
        show_progress("Starting") as bar,
        use_stack(_without_tenant_limit(environment), plan.options, bar.step, lambda: interruption.hurry) as stack,
    ):
        bench = _Bench(environment, stack, plan, bar, profiler)
        report = interruption.run(run_watched(stack.check, bench.measure()))
    path = plan.json or folder.path / "bench.json"
    figures = write_json(path, report)
    for line in render_table(figures):
        say(line)
    say(f"The figures: {path}")
    if plan.record:
        write_page(environment.root / PAGE, figures, plan.command)
        say(f"The page: {environment.root / PAGE}")
    if not all(result.turns or result.refused for result in report.results):
        raise OpsError("In at least one run nobody heard anything.")


def _without_tenant_limit(environment: Environment) -> Environment:
    """All users are one tenant's here; what is measured is what the workers carry, not what a tenant may have."""
    limits = {f"TIMBRELAY_{name}": str(2 * MAX_USERS) for name in ("MAX_CONTEXTS", "MAX_TENANT_CONTEXTS")}
    return replace(environment, variables={**limits, **environment.variables})


@dataclass(slots=True)
class _Bench:
    environment: Environment
    stack: Stack
    plan: Plan
    bar: Bar
    profiler: Path | None
    _doors: Sequence[Mapping[str, Any]] = ()
    _idle_sockets: Mapping[str, float] | None = None

    async def measure(self) -> Report:
        results = await with_local_key(DataFolder(self.environment.home), self.stack.servers, self._measure_runs)
        return Report(
            machine=describe_machine(),
            date=today(),
            commit=find_commit(self.environment.root),
            seed=self.plan.seed,
            results=results,
            baseline=await self._measure_baseline(),
            doors=self._doors,
            idle_sockets=self._idle_sockets,
        )

    async def _measure_runs(self, key: str) -> list[Result]:
        reference = default_reference(self.environment)
        results: list[Result] = []
        async with Client(self.stack.note.relay_url, key) as client:
            voice = await ensure_voice(client, reference, SYNTHETIC_STATEMENT, self.stack.allow_enrolment, self.bar)
            await run_agents(client, Load(voice.id, 1, _WARM_UP_S, self.plan.seed))
            for users in self.plan.users:
                results.append(await self._measure_run(client, voice.id, users))
                if results[-1].broken and not self.plan.beyond:
                    self.bar.say(f"Stopping at {users} users: {results[-1].broken}.")
                    break
        await self._measure_doors(Site(self.stack.note.relay_url, key, voice.id))
        return results

    async def _measure_doors(self, site: Site) -> None:
        if not self.plan.doors:
            return
        relay = Relay(self._pids(), self.stack.note.metrics_urls["relay"])
        self.bar.step(f"{SOCKETS} idle sockets")
        self._idle_sockets = await measure_idle_sockets(site, relay)
        self._doors = await measure_doors(site, relay, Rounds(self.plan.doors), self.bar.step)

    async def _measure_run(self, client: Client, voice: str, users: int) -> Result:
        self.bar.step(f"{users} agents for {self.plan.seconds:.0f} s")
        load = Load(voice, users, self.plan.seconds, self.plan.seed)
        urls, generator = self.stack.note.metrics_urls.values(), os.getpid()
        shown = await stages.fetch(urls)
        begin = resources.take_snapshot(self._pids(), generator)
        async with self._profiling(users):
            tally = await self._run_load(client, load)
        end = resources.take_snapshot(self._pids(), generator)
        shown_now = await stages.fetch(urls)
        seen = Surroundings(
            resources.compare(begin, end),
            resources.machine_share(begin, end),
            stages.compare(shown, shown_now, tally.audio_s),
            shown_now.capacity,
            shown_now.late - shown.late,
        )
        return Result.of(users, end.at - begin.at, tally, seen)

    async def _run_load(self, client: Client, load: Load) -> Tally:
        running = asyncio.create_task(run_agents(client, load))
        began = time.monotonic()
        try:
            while not running.done():
                self.bar.advance_to(min(time.monotonic() - began, load.seconds), load.seconds)
                await asyncio.wait({running}, timeout=0.2)
            return running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})

    @contextlib.asynccontextmanager
    async def _profiling(self, users: int) -> AsyncIterator[None]:
        if self.profiler is None:
            yield
            return
        pids = {name: pid for name, pid in self._pids().items() if name.startswith(_PROFILED)}
        async with profiling(self.profiler, pids, self.environment.home, f"{users}-users") as graphs:
            yield
        for graph in graphs:
            self.bar.say(f"Flame graph: {graph}")

    async def _measure_baseline(self) -> Baseline | None:
        self.bar.step("The same sentences without a service")
        bundle = Path(self.environment.variables.get("TIMBRELAY_BUNDLE") or self.environment.root / "bundles" / "base")
        sentences: Sequence[str] = cut_replies()
        try:
            return await asyncio.to_thread(
                measure_baseline, bundle, default_reference(self.environment), sentences, min(self.plan.seconds, 8.0)
            )
        except ImportError as error:
            complain(f"No baseline: {error}.")
            return None

    def _pids(self) -> dict[str, int]:
        supervisor = self.stack.supervisor
        return supervisor.pids() if supervisor else self.stack.note.pids
