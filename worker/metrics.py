"""The worker's figures for Prometheus; no tenant, no voice, no text in a label."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)

JOBS = Counter("timbrelay_worker_jobs", "Jobs by how they ended", ["outcome"])
CHUNKS = Counter("timbrelay_worker_chunks", "Chunks published")
ERRORS = Counter("timbrelay_worker_errors", "Failures by code", ["code"])
CUT = Counter("timbrelay_worker_cut_sentences", "Sentences that did not stop by themselves and were cut")
NON_FINITE = Counter("timbrelay_worker_non_finite", "Sentences in which a model gave what is no number", ["stage"])
REVOKED = Counter("timbrelay_worker_revoked_voices", "Voices forgotten because they were deleted")
ACTIVE = Gauge("timbrelay_worker_active_jobs", "Sentences that are being synthesized now")
CAPACITY = Gauge("timbrelay_worker_capacity_streams", "Listeners that the worker holds at real time")
BUSY = Gauge("timbrelay_worker_busy_share", "Share of the time in which the models run")
QUEUE_LAG = Gauge("timbrelay_queue_lag_jobs", "Jobs that no worker has taken yet")
QUEUE_PENDING = Gauge("timbrelay_queue_pending_jobs", "Jobs taken and not acknowledged")
BATCH_ROWS = Histogram(
    "timbrelay_worker_batch_rows", "Sentences in one step of the models", buckets=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
)
RUN_AHEAD = Histogram(
    "timbrelay_worker_run_ahead_seconds",
    "How long before its listener runs dry a chunk was published; below 0 it came late",
    buckets=(-1, -0.3, -0.1, 0, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5),
)
STAGES = Histogram(
    "timbrelay_worker_stage_seconds",
    "Time of a sentence in the queue, in text, encoder and before its first step, and of a chunk in the rest",
    ["stage"],
    buckets=_SECONDS,
)
FIRST_CHUNK = Histogram(
    "timbrelay_worker_first_chunk_seconds", "From taking a job to publishing its first chunk", buckets=_SECONDS
)
REAL_TIME_FACTOR = Histogram(
    "timbrelay_worker_real_time_factor",
    "Wall time of a sentence's synthesis over its duration",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 5),
)
