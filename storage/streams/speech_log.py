"""The speech log: what each finished context has used, from the relays that heard it to the tenants' accounts.

A stream a tenant, so that a tenant's entries are accounted for in one transaction of that tenant, and neither its noise
nor a fault in its entries is another's concern. An entry holds ids, counts and a keyed hash, never text.

Whoever accounts for the entries keeps a mark: the last entry's id, and the epoch, a name for this life of the data of
Redis. Ids mean nothing across epochs (a Redis that was emptied counts anew, maybe lower). Within one they only rise; a
stream that fell behind its mark, because Redis lost its last second, is brought forward to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from storage.errors import MalformedEntry
from storage.redis import SPEECH_EPOCH, SPEECH_LOGS, noted_key, speech_log_key, translated

MAX_LENGTH = 20_000
"""Entries a tenant; about 8 MB. Where nobody accounts for so many, the oldest are lost."""

REPEATS_S = 600
"""For so long a context that is noted again counts once."""

TENANTS_LIMIT = 1000
_VERSION = b"1"
_EPOCH_BYTES = 8

_NOTE = """
if not redis.call('SET', KEYS[4], '1', 'NX', 'EX', ARGV[4]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'NX')
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, 5))
return 1
"""
_READ = """
local epoch = redis.call('GET', KEYS[1])
if not epoch then return {false, {}, 0} end
local start = '-'
if epoch == ARGV[1] then
  -- Refused unless the stream has fallen behind the mark.
  local added = redis.pcall('XADD', KEYS[2], ARGV[2], 'mark', '1')
  if type(added) == 'string' then redis.call('XDEL', KEYS[2], ARGV[2]) end
  start = '(' .. ARGV[2]
end
return {epoch, redis.call('XRANGE', KEYS[2], start, '+', 'COUNT', ARGV[3]), redis.call('XLEN', KEYS[2])}
"""
_TRIM = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local gone = redis.call('XTRIM', KEYS[3], 'MINID', ARGV[2])
if redis.call('XLEN', KEYS[3]) == 0 then redis.call('SREM', KEYS[2], ARGV[3]) end
return gone
"""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What one context has used."""

    tenant: UUID
    voice: UUID
    version: int
    key_id: UUID
    """The API key that opened it."""
    origin: str
    """The address of whoever did."""
    context: str
    """The context's key, unique over all relays."""
    sentences: int
    characters: int
    audio_ms: int
    text_hmac: str
    """Hex HMAC-SHA256 of the text under the tenant's audit key; empty when nothing was said."""
    at_ms: int
    """When it ended, in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a tenant's log has been accounted for."""

    epoch: str = ""
    entry: str = "0-0"

    @classmethod
    def parse(cls, text: str) -> Mark:
        """As `str` has written it."""
        epoch, _, entry = text.partition(" ")
        return cls(epoch, entry)

    def __str__(self) -> str:
        return f"{self.epoch} {self.entry}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries in the order they were added."""

    entries: tuple[Spoken, ...]
    mark: Mark
    """Where the next batch begins."""
    malformed: int
    """How many entries could not be read, and are passed over."""
    length: int
    """How many entries the log held, those that were read included."""


async def note_spoken(redis: Redis, spoken: Spoken) -> None:
    """Add a context that has ended to its tenant's log; noting it again within REPEATS_S does nothing.

    Raises ServerUnavailable.
    """
    keys = [SPEECH_EPOCH, SPEECH_LOGS, speech_log_key(spoken.tenant), noted_key(spoken.context)]
    entry = [part for field in _encode(spoken).items() for part in field]
    arguments = [secrets.token_hex(_EPOCH_BYTES), str(spoken.tenant), MAX_LENGTH, REPEATS_S, *entry]
    async with translated():
        await _run(redis, _NOTE, keys, arguments)


async def list_speakers(redis: Redis) -> list[UUID]:
    """Tenants whose logs hold something, a thousand at most, in no order; raises ServerUnavailable."""
    async with translated():
        members: Any = await redis.srandmember(SPEECH_LOGS, TENANTS_LIMIT)
    return [UUID(member.decode()) for member in members]


async def read_spoken(redis: Redis, tenant: UUID, after: Mark, limit: int) -> Batch:
    """Up to `limit` entries of a tenant's log that follow a mark; raises ServerUnavailable."""
    keys, arguments = [SPEECH_EPOCH, speech_log_key(tenant)], [after.epoch, after.entry, limit]
    async with translated():
        epoch, rows, length = await _run(redis, _READ, keys, arguments)
    if epoch is None or not rows:
        return Batch((), after, 0, length)
    entries, malformed = [], 0
    for _, flat in rows:
        try:
            entries.append(_decode(dict(zip(flat[::2], flat[1::2], strict=True)), tenant))
        except MalformedEntry:
            malformed += 1
    return Batch(tuple(entries), Mark(epoch.decode(), rows[-1][0].decode()), malformed, length)


async def trim_spoken(redis: Redis, tenant: UUID, mark: Mark) -> None:
    """Drop what has been accounted for, up to a mark that is kept; raises ServerUnavailable.

    Not doing it does no harm: the entries are passed over when they are read again.
    """
    milliseconds, sequence = mark.entry.split("-")
    keys = [SPEECH_EPOCH, SPEECH_LOGS, speech_log_key(tenant)]
    async with translated():
        await _run(redis, _TRIM, keys, [mark.epoch, f"{milliseconds}-{int(sequence) + 1}", str(tenant)])


async def _run(redis: Redis, script: str, keys: list[str], arguments: list[Any]) -> Any:
    reply: Any = redis.eval(script, len(keys), *keys, *arguments)
    return await reply


def _encode(spoken: Spoken) -> dict[str, str | bytes]:
    return {"v": _VERSION, **{field.name: str(getattr(spoken, field.name)) for field in fields(Spoken)}}


def _decode(entry: Mapping[bytes, bytes], tenant: UUID) -> Spoken:
    if entry.get(b"v") != _VERSION:
        raise MalformedEntry("not a speech log entry of format 1")
    try:
        values = {
            field.name: _READERS[str(field.type)](entry[field.name.encode()].decode()) for field in fields(Spoken)
        }
    except (KeyError, ValueError) as error:
        raise MalformedEntry(f"a speech log entry with a missing or malformed field: {error}") from error
    if values["tenant"] != tenant or min(values["sentences"], values["characters"], values["audio_ms"]) < 0:
        raise MalformedEntry("a speech log entry of another tenant, or with a count below zero")
    return Spoken(**values)


_READERS: Mapping[str, Callable[[str], Any]] = {"str": str, "int": int, "UUID": UUID}
