"""Usage: what each voice has spoken, by the day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from relay.api.answers import show
from relay.api.cursors import read_place, write_place
from relay.api.routes import Cursor, IfNoneMatch, Limit, door
from relay.api.services import Here
from relay.api.visits import Visitor
from relay.errors import InvalidRequest
from storage.paging import Page
from storage.tenancy.api_keys import Scope
from storage.tenancy.usage import read_usage

router = APIRouter(prefix="/v1/usage", tags=["usage"])
MAX_DAYS = 1100
DEFAULT_DAYS = 31


class UsageItem(BaseModel):
    """What one voice has spoken on one day (UTC)."""

    day: date
    voice: UUID
    contexts: int
    sentences: int
    characters: int
    audio_ms: int


class UsageList(BaseModel):
    """Usage, newest day first."""

    first_day: date
    last_day: date
    usage: list[UsageItem]
    next_cursor: str | None


@router.get("", response_model=UsageList, **door(Scope.ADMIN, refuses=(304,)))
async def list_usage(
    request: Request,
    visit: Visitor,
    services: Here,
    first: Annotated[
        date | None, Query(alias="from", description="The first day; 30 before the last if left out.")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="The last day; today if left out.")] = None,
    voice: Annotated[UUID | None, Query(description="Only this voice's, deleted or not.")] = None,
    limit: Limit = 20,
    cursor: Cursor = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List what was spoken; what was spoken in the last seconds may be missing still."""
    last_day = last or datetime.now(UTC).date()
    first_day = first or last_day - timedelta(days=min(DEFAULT_DAYS - 1, (last_day - date.min).days))
    if not 0 <= (last_day - first_day).days < MAX_DAYS:
        raise InvalidRequest(f"`from` must be no later than `to`, and less than {MAX_DAYS} days before", field="from")
    kind = f"usage {first_day} {last_day} {voice}"
    page = Page(limit, read_place(kind, cursor))
    found = await services.within(
        visit.tenant,
        lambda connection: read_usage(connection, visit.tenant, first_day, last_day, voice=voice, page=page),
    )
    shown = [
        UsageItem(
            day=row.day,
            voice=row.voice_id,
            contexts=row.contexts,
            sentences=row.sentences,
            characters=row.characters,
            audio_ms=row.audio_ms,
        )
        for row in found.items
    ]
    following = write_place(kind, found.after)
    return show(request, UsageList(first_day=first_day, last_day=last_day, usage=shown, next_cursor=following))
