"""The figures of a benchmark, and what they are held against. Plain values; times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from timbrelay.benchmark.baseline import Baseline
from timbrelay.benchmark.resources import Share
from timbrelay.benchmark.stages import Stage
from timbrelay.benchmark.tally import Tally, percentile

PROMISED_MS = 200.0
SATURATED = 0.9
"""A load generator that takes more of a core than this has measured itself."""
LAGGING_MS = 20.0
GENERATOR = "load generator"


@dataclass(frozen=True, slots=True)
class Spread:
    """Three percentiles of so many samples."""

    p50: float
    p95: float
    p99: float
    samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """From seconds to milliseconds."""
        p50, p95, p99 = (round(percentile(seconds, share) * 1000, 1) for share in (0.50, 0.95, 0.99))
        return cls(p50, p95, p99, len(seconds))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was seen of the machine and the processes during a run."""

    processes: Mapping[str, Share] = field(default_factory=dict)
    machine_cpu: float = 0.0
    """Cores that were busy, whoever they worked for."""

    stages: Sequence[Stage] = ()
    capacity: float | None = None
    """Streams that the workers said they hold."""

    late_chunks: int = 0
    """As the relay counted them."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    users: int
    seconds: float
    turns: int
    interrupted: int
    first_audio: Spread
    """At the client: from sending the token that completes the first clause to the first audio."""

    relay_first_audio: Spread
    """In the relay: from the first complete clause to the first audio on its way out."""

    overhead: Spread
    """Of that, what was not computing: queue, relay, streams. Without samples when the worker does not say."""

    gap_p99_ms: float
    underruns: int
    underrun_ms: float
    real_time_factor: float
    """What a second of audio took, from a sentence's hand-over to its last chunk; a worker that does not run ahead of
    its listeners comes near 1."""

    audio_s: float
    refused: int
    refused_users: int
    errors: Mapping[str, int]
    generator_lag_p99_ms: float
    processes: Mapping[str, Share]
    machine_cpu: float
    worker_cpu_per_audio: float | None
    """Seconds of a core that the workers took for a second of audio."""

    stages: Sequence[Stage]
    capacity: float | None
    late_chunks: int

    @classmethod
    def of(cls, users: int, seconds: float, tally: Tally, seen: Surroundings) -> Result:
        worker_cpu = [share.cpu for name, share in seen.processes.items() if name.startswith("worker")]
        per_audio = sum(worker_cpu) * seconds / tally.audio_s if worker_cpu and tally.audio_s else None
        return cls(
            users=users,
            seconds=round(seconds, 1),
            turns=tally.turns,
            interrupted=tally.interrupted,
            first_audio=Spread.of(tally.first_audio_s),
            relay_first_audio=Spread.of(tally.relay_first_audio_s),
            overhead=Spread.of(tally.overhead_s),
            gap_p99_ms=round(percentile(tally.gaps_s, 0.99) * 1000, 1),
            underruns=tally.underruns,
            underrun_ms=round(tally.silence_s * 1000, 1),
            real_time_factor=round(tally.sentences_s / tally.spoken_s, 3) if tally.spoken_s else 0.0,
            audio_s=round(tally.audio_s, 1),
            refused=tally.refused,
            refused_users=len(tally.refused_users),
            errors=dict(tally.errors),
            generator_lag_p99_ms=round(percentile(tally.lags_s, 0.99) * 1000, 1),
            processes=seen.processes,
            machine_cpu=seen.machine_cpu,
            worker_cpu_per_audio=None if per_audio is None else round(per_audio, 4),
            stages=seen.stages,
            capacity=seen.capacity,
            late_chunks=seen.late_chunks,
        )

    @property
    def broken(self) -> str | None:
        """Which criterion says that not all of these users were held at real time; None when they were."""
        if self.refused:
            return f"{self.refused} contexts of {self.refused_users} users were refused"
        if self.errors:
            return "errors: " + ", ".join(f"{code} {count}" for code, count in sorted(self.errors.items()))
        if not self.turns:
            return "nobody heard anything"
        if self.underruns:
            return f"{self.underruns} underruns, {self.underrun_ms:.0f} ms of silence"
        if self.first_audio.p95 >= PROMISED_MS:
            return f"first audio p95 {self.first_audio.p95:.0f} ms, promised are {PROMISED_MS:.0f} ms"
        return None

    @property
    def promise_kept(self) -> bool:
        """Whether those who were taken were served as promised: in time, and without a gap."""
        return bool(self.turns) and not self.underruns and self.first_audio.p95 < PROMISED_MS

    @property
    def doubt(self) -> str | None:
        """Why the load generator may have measured itself; None when it had room."""
        generator = self.processes.get(GENERATOR)
        if generator is not None and generator.cpu > SATURATED:
            return f"the load generator was saturated ({generator.cpu:.2f} of a core)"
        if self.generator_lag_p99_ms > LAGGING_MS:
            return f"the load generator was up to {self.generator_lag_p99_ms:.0f} ms late (p99): the machine was full"
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole benchmark."""

    machine: str
    date: str
    commit: str
    seed: int
    results: Sequence[Result]
    baseline: Baseline | None
    doors: Sequence[Mapping[str, Any]] = ()
    """A line for each door, where they were measured."""
    idle_sockets: Mapping[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is derived is written, too, for readers that only read."""
        figures = asdict(self)
        for run, result in zip(figures["results"], self.results, strict=True):
            run.update(broken=result.broken, promise_kept=result.promise_kept, doubt=result.doubt)
        if self.baseline is not None:
            figures["baseline"]["gain"] = self.baseline.gain
        return figures


@dataclass(frozen=True, slots=True)
class Target:
    """One figure of what the engine has to reach."""

    name: str
    must: str
    aim: str
    reached: str


def held_users(results: Sequence[Result]) -> int:
    """The most users who were held at real time; what was run beyond the first that broke does not count."""
    held = 0
    for result in sorted(results, key=lambda result: result.users):
        if result.broken:
            break
        held = result.users
    return held


def hold_against_targets(report: Report) -> list[Target]:
    """The figures of two cores that carry everything, with what was measured."""
    runs = {result.users: result for result in report.results}
    one, ten = runs.get(1), runs.get(10)
    last = max(runs, default=0)
    held = held_users(report.results)
    gain = f"{report.baseline.gain:.1f}x" if report.baseline else "-"
    return [
        Target("first audio, 1 user, p50", "40 ms", "20 ms", f"{one.first_audio.p50:.0f} ms" if one else "-"),
        Target("first audio, 10 users, p95", "120 ms", "60 ms", f"{ten.first_audio.p95:.0f} ms" if ten else "-"),
        Target("users held at real time, no underrun, p95 under 200 ms", "24", "64", f"{held} of {last} tried"),
        Target("queue and relay overhead, 10 users, p99", "10 ms", "3 ms", _overhead(ten)),
        Target("worker memory over the run at 10 users", "flat", "flat, under 600 MB", _memory(ten)),
        Target("gain of batches of ten over one at a time", "2x", "4x", gain),
    ]


def _overhead(result: Result | None) -> str:
    return f"{result.overhead.p99:.1f} ms" if result and result.overhead.samples else "-"


def _memory(result: Result | None) -> str:
    share = result.processes.get("worker") if result else None
    if result is None or share is None:
        return "-"
    return f"{share.rss_begin_mb:.0f} MB, after {result.seconds:.0f} s {share.rss_mb:.0f} MB"
