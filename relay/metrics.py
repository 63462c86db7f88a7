"""The relay's figures for Prometheus; no tenant, no voice, no text in a label."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

TIME_TO_FIRST_AUDIO = Histogram(
    "timbrelay_time_to_first_audio_seconds",
    "From a context's first complete clause to its first chunk on the way to the client",
    buckets=(0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.5, 1, 2, 5),
)
JOBS = Counter("timbrelay_jobs_submitted", "Sentences handed to the workers, again counted again")
SENTENCES = Counter("timbrelay_sentences_spoken", "Sentences that were spoken to their end")
CHUNKS = Counter("timbrelay_chunks_sent", "Chunks on their way to clients")
ERRORS = Counter("timbrelay_errors", "Errors that clients were told of, by code", ["code"])
CONNECTIONS = Gauge("timbrelay_connections", "Open WebSocket connections")
CONTEXTS = Gauge("timbrelay_contexts", "Open contexts")
QUEUE_LAG = Gauge("timbrelay_relay_queue_lag_jobs", "Jobs that no worker has taken yet, as this relay sees it")
