"""The worker's figures for Prometheus; no tenant, no voice, no text in a label."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

JOBS = Counter("timbrelay_worker_jobs", "Jobs by how they ended", ["outcome"])
CHUNKS = Counter("timbrelay_worker_chunks", "Chunks published")
ERRORS = Counter("timbrelay_worker_errors", "Failures by code", ["code"])
ACTIVE = Gauge("timbrelay_worker_active_jobs", "Sentences that are being synthesized now")
QUEUE_LAG = Gauge("timbrelay_queue_lag_jobs", "Jobs that no worker has taken yet")
QUEUE_PENDING = Gauge("timbrelay_queue_pending_jobs", "Jobs taken and not acknowledged")
FIRST_CHUNK = Histogram(
    "timbrelay_worker_first_chunk_seconds",
    "From taking a job to publishing its first chunk",
    buckets=(0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5),
)
REAL_TIME_FACTOR = Histogram(
    "timbrelay_worker_real_time_factor",
    "Wall time of a sentence's synthesis over its duration",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 5),
)
