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
REFUSED = Counter("timbrelay_contexts_refused", "Contexts refused for the sake of those who listen", ["grounds"])
RATE_LIMITED = Counter(
    "timbrelay_rate_limited", "Requests refused because too many came, by what was counted", ["kind"]
)
WRONG_KEYS = Counter("timbrelay_wrong_keys", "Requests that carried a key, and one that opens nothing")
QUOTA_EXCEEDED = Counter("timbrelay_quota_exceeded", "What was refused because a tenant has had its share", ["quota"])
CUT_OFF = Counter("timbrelay_connections_cut_off", "Connections closed because their key opens nothing any more")
NOTES = Counter("timbrelay_speech_notes", "What was spoken, as it was written to the speech log", ["outcome"])
LATE = Counter("timbrelay_late_chunks", "Chunks that came after their listener had run dry, or 200 ms after their text")
CAPACITY = Gauge("timbrelay_capacity_streams", "Streams at real time that the workers say they can carry")
CEILING = Gauge("timbrelay_ceiling_streams", "Streams that newcomers may count on, after what has proved too much")
SPEAKING = Gauge("timbrelay_speaking_contexts", "Contexts of all relays whose listener hears or waits for audio")
CONVERSATIONS = Gauge("timbrelay_conversations", "Contexts of all relays that speak or may speak again at any moment")
DUTY = Gauge("timbrelay_duty_ratio", "The share of its time that a conversation speaks")
_STAGES = Histogram(
    "timbrelay_relay_stage_seconds",
    "What a message or chunk costs in the relay: text (cutting), encode (making a frame), send (until it is written)",
    ["stage"],
    buckets=(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)
TEXT_STAGE, ENCODE_STAGE, SEND_STAGE = (_STAGES.labels(stage) for stage in ("text", "encode", "send"))
OVERHEAD = Histogram(
    "timbrelay_overhead_seconds",
    "From handing a sentence out to its first chunk on the way to the client, less what the worker computed for it",
    buckets=(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1),
)
QUEUE_LAG = Gauge("timbrelay_relay_queue_lag_jobs", "Jobs that no worker has taken yet, as this relay sees it")


def show_admission(capacity: float, ceiling: float, speaking: int, conversations: int, duty: float) -> None:
    """Show what a heartbeat has found about supply and demand."""
    for gauge, value in ((CAPACITY, capacity), (CEILING, ceiling), (DUTY, duty)):
        gauge.set(value)
    SPEAKING.set(speaking)
    CONVERSATIONS.set(conversations)
