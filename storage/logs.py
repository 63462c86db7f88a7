"""Structured logs: one JSON object a line on standard error, never with text, keys or voice data."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import SecretBytes as PydanticSecretBytes
from pydantic import SecretStr

from storage.encryption.secrets import HIDDEN, SecretBytes

# What a person said, and what gives access, is not for a log, whoever asks for it.
SECRET_FIELDS = frozenset({"text", "key", "authorization", "recording", "embedding", "pcm", "subject", "statement"})
# Whatever field they stand in: keys and people's data are secrets by type, and audio, embeddings and keys are bytes.
_SECRET_TYPES = (SecretBytes, SecretStr, PydanticSecretBytes, bytes, bytearray, memoryview)
_DEPTH_LIMIT = 6
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
        conceal_secrets,
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
    handler.addFilter(_conceal_arguments)
    handler.setFormatter(formatter)
    logging.basicConfig(level=max(logging.INFO, logging.getLevelName(level)), handlers=[handler], force=True)
    for room in _OWN_LOGGERS:
        logging.getLogger(room).setLevel(level)
    # It notes each WebSocket with the client's address and the whole query, in which a client may have put its key.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # It notes each pair of addresses that it tries, those of a client's home network among them: a dozen lines a peer.
    logging.getLogger("aioice").setLevel(logging.WARNING)
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


def conceal_secrets(_logger: object, _method: str, event: Event) -> Event:
    """A structlog processor that hides secrets and bytes by their type, wherever they stand in an event."""
    return {name: _conceal(value, _DEPTH_LIMIT) for name, value in event.items()}


def _conceal_arguments(record: logging.LogRecord) -> bool:
    """A filter that does the same for what a library formats into its message."""
    if isinstance(record.args, Mapping):
        record.args = _conceal_mapping(record.args, _DEPTH_LIMIT)
    elif record.args:
        record.args = tuple(_conceal(value, _DEPTH_LIMIT) for value in record.args)
    return True


def _conceal(value: object, depth: int) -> object:
    if isinstance(value, _SECRET_TYPES):
        return HIDDEN
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    if not depth:
        return "[too deep]"
    if isinstance(value, Mapping):
        return _conceal_mapping(value, depth)
    held = (_conceal(held, depth - 1) for held in value)
    # An `exc_info` has to stay a tuple.
    return tuple(held) if isinstance(value, tuple) else list(held)


def _conceal_mapping(value: Mapping[Any, object], depth: int) -> dict[Any, object]:
    return {_conceal(name, depth - 1): _conceal(held, depth - 1) for name, held in value.items()}
