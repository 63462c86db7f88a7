"""Where a voice is kept, in the order in which it is deleted: it falls silent, its key goes, and then the rest."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Text, cast, null, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.encryption.keyring import destroy_data_key
from storage.evidence.deletions import Outcome
from storage.evidence.scenes import Progress, Rows, Scene, Store, Traces
from storage.streams.broadcasts import EMBEDDING_TTL_S, await_acknowledgements, silence_voice
from storage.streams.job_traces import strip_jobs
from storage.streams.leftovers import count_spoken, rewrite_journal, strip_dead_letter, strip_queues
from storage.tables import idempotency_keys
from storage.voices.voices import finish_deletion

ACKNOWLEDGE_WITHIN_S = 1.0
END_WITHIN_S = 1.0
REWRITE_WITHIN_S = 1.0


async def forget_responses(connection: AsyncConnection, scene: Scene) -> Progress:
    """A request that is repeated is answered as one whose object is gone: what was answered then is not kept."""
    named = cast(idempotency_keys.c.response, Text).contains(str(scene.object_id))
    statement = (
        update(idempotency_keys)
        .where(
            idempotency_keys.c.tenant_id == scene.tenant,
            idempotency_keys.c.response.is_not(None),
            or_(idempotency_keys.c.object_id == scene.object_id, named),
        )
        .values(response=null())
    )
    return Progress((await connection.execute(statement)).rowcount)


async def _fall_silent(scene: Scene) -> Progress:
    await silence_voice(scene.redis, scene.object_id)
    return Progress(0 if "speech" in scene.reports else 1)


async def _destroy_key(connection: AsyncConnection, scene: Scene) -> Progress:
    return Progress(int(await destroy_data_key(connection, scene.object_id)))


async def _erase_rows(connection: AsyncConnection, scene: Scene) -> Progress:
    erased = await finish_deletion(connection, scene.tenant, scene.object_id)
    return Progress(erased.versions + erased.aliases)


async def _hear_workers(scene: Scene) -> Progress:
    acknowledged = await await_acknowledgements(scene.redis, scene.object_id, ACKNOWLEDGE_WITHIN_S)
    earlier = scene.reports.get("workers")
    count = max(0, len(acknowledged.heard) - (earlier.count if earlier else 0))
    missing = len(acknowledged.missing)
    if not missing:
        return Progress(count)
    if _silent_for_s(scene) > EMBEDDING_TTL_S:
        return Progress(count, detail=f"{missing} did not acknowledge, and keep nothing for longer than this")
    present = len(acknowledged.heard | acknowledged.missing)
    return Progress(count, waits_for=f"{missing} of {present} workers have not acknowledged")


def _silent_for_s(scene: Scene) -> float:
    speech = scene.reports.get("speech")
    if speech is None or speech.outcome is not Outcome.DONE:
        return 0.0
    return (datetime.now(UTC) - speech.at).total_seconds()


async def _strip_jobs(scene: Scene) -> Progress:
    stripped = await strip_jobs(scene.redis, scene.object_id, END_WITHIN_S)
    if stripped.left:
        return Progress(stripped.count, waits_for=f"{stripped.left} jobs have to end")
    rewritten = await rewrite_journal(scene.redis, scene.object_id, REWRITE_WITHIN_S)
    return Progress(stripped.count, waits_for="" if rewritten else "Redis is writing its append-only file already")


async def _strip_dead_letter(scene: Scene) -> Progress:
    return Progress(await strip_dead_letter(scene.redis, scene.object_id))


async def _strip_queues(scene: Scene) -> Progress:
    taken, left = await strip_queues(scene.redis, scene.object_id)
    detail = f"{left} messages are with a process; they hold ids alone and find nothing to do" if left else ""
    return Progress(taken, detail=detail)


async def _count_spoken(scene: Scene) -> Progress:
    """The log of speech holds ids, counts and a keyed hash; the roll-up takes them to usage and audit, which stay."""
    waiting = await count_spoken(scene.redis, scene.tenant, scene.object_id)
    return Progress(0, detail=f"{waiting} entries go to usage and audit; they hold no text" if waiting else "")


VOICE_STORES: tuple[Store, ...] = (
    Traces("speech", _fall_silent, again_until="workers", at_once=True),
    Rows("keys", _destroy_key, at_once=True),
    Rows("rows", _erase_rows, needs=("keys",)),
    Traces("workers", _hear_workers, needs=("speech",)),
    Traces("jobs", _strip_jobs, needs=("speech",)),
    Traces("dead_letter", _strip_dead_letter),
    Traces("celery", _strip_queues),
    Rows("idempotency", forget_responses),
    Traces("speech_log", _count_spoken),
)
