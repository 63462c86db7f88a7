"""Structured logs: one JSON object a line on standard error, never with text, keys or voice data."""

from __future__ import annotations

import logging
import sys

import structlog

# What a person said, and what gives access, is not for a log, whoever asks for it.
SECRET_FIELDS = frozenset({"text", "key", "authorization", "recording", "embedding", "pcm", "subject", "statement"})
_OWN_LOGGERS = ("relay", "worker", "storage", "__main__")
"""Only these follow a level below INFO: at DEBUG the libraries log headers, frames and parameters as they are."""
Event = structlog.typing.EventDict


def configure_logs(process: str, level: str) -> None:
    """Send this process's events, and those of the libraries it uses, to standard error as JSON."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _drop_secrets,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=max(logging.INFO, logging.getLevelName(level)), handlers=[handler], force=True)
    for room in _OWN_LOGGERS:
        logging.getLogger(room).setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def _drop_secrets(_logger: object, _method: str, event: Event) -> Event:
    for field in SECRET_FIELDS & event.keys():
        event[field] = "[withheld]"
    return event
