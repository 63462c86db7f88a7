"""Where the time goes, from the figures that relay and workers show to Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from timbrelay.errors import OpsError

WAY = (
    ("relay", "text"),
    ("worker", "queue"),
    ("worker", "text"),
    ("worker", "encode"),
    ("worker", "wait"),
    ("worker", "decode"),
    ("worker", "vocode"),
    ("worker", "publish"),
    ("relay", "encode"),
    ("relay", "send"),
)
"""A sentence's way: cut, queued, read, encoded, waiting for a place, decoded, vocoded, published, framed, sent."""

_HISTOGRAMS = ("timbrelay_worker_stage_seconds", "timbrelay_relay_stage_seconds")
_LATE = "timbrelay_late_chunks_total"
_CAPACITY = "timbrelay_capacity_streams"
_TIMEOUT_S = 5.0

Key = tuple[str, str]
"""The room (`relay` or `worker`) and the stage."""


@dataclass(slots=True)
class Series:
    """A histogram, or several added up: how many, how much, and how many up to each edge."""

    count: float = 0.0
    total_s: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)

    def minus(self, before: Series) -> Series:
        """What came since."""
        edges = {edge: number - before.buckets.get(edge, 0.0) for edge, number in self.buckets.items()}
        return Series(self.count - before.count, self.total_s - before.total_s, edges)

    def percentile(self, share: float) -> float:
        """The edge that at least this share does not exceed; a histogram knows no more."""
        wanted = share * self.count
        return next((edge for edge in sorted(self.buckets) if self.buckets[edge] >= wanted), math.inf)


@dataclass(slots=True)
class Exposition:
    """What the processes showed at one moment."""

    stages: dict[Key, Series] = field(default_factory=dict)
    late: int = 0
    """Chunks that the relay saw come too late."""

    capacity: float | None = None
    """Streams that the workers said they hold; None when they did not."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage over a run."""

    room: str
    name: str
    count: int
    mean_ms: float
    p99_ms: float | None
    """The histogram's edge; None above the last."""

    share: float
    """Seconds of it for a second of audio."""


async def fetch(urls: Iterable[str]) -> Exposition:
    """Raises OpsError when a process does not answer."""
    texts = []
    async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
        for url in urls:
            try:
                texts.append((await client.get(f"{url}/metrics")).text)
            except httpx2.TransportError as error:
                raise OpsError(f"{url}/metrics does not answer: {error or type(error).__name__}.") from error
    return parse(texts)


def parse(texts: Iterable[str]) -> Exposition:
    """The figures that the benchmark shows; those of several workers are added up."""
    found = Exposition()
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                _take(found, family.name, sample.name, sample.labels, sample.value)
    return found


def compare(begin: Exposition, end: Exposition, audio_s: float) -> list[Stage]:
    """What each stage took between two moments, in the order of a sentence's way."""
    found = []
    for (room, name), series in end.stages.items():
        new = series.minus(begin.stages.get((room, name), Series()))
        if new.count:
            p99 = new.percentile(0.99) * 1000
            share = round(new.total_s / audio_s, 4) if audio_s else 0.0
            mean_ms = round(1000 * new.total_s / new.count, 3)
            found.append(Stage(room, name, int(new.count), mean_ms, None if math.isinf(p99) else p99, share))
    order = {key: number for number, key in enumerate(WAY)}
    return sorted(found, key=lambda stage: order.get((stage.room, stage.name), len(order)))


def _take(found: Exposition, family: str, name: str, labels: Mapping[str, str], value: float) -> None:
    if family in _HISTOGRAMS:
        room = "worker" if "worker" in family else "relay"
        series = found.stages.setdefault((room, labels.get("stage", "")), Series())
        if name.endswith("_count"):
            series.count += value
        elif name.endswith("_sum"):
            series.total_s += value
        elif name.endswith("_bucket"):
            edge = float(labels["le"])
            series.buckets[edge] = series.buckets.get(edge, 0.0) + value
    elif name == _LATE:
        found.late += int(value)
    elif name == _CAPACITY and math.isfinite(value):
        found.capacity = value
