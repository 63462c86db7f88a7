"""What the operator may know of the service as a whole, as this relay sees it; and what any error code means."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from relay.api.answers import show, tell
from relay.api.problems import find_title
from relay.api.routes import IdInPath, IfNoneMatch, door, open_door
from relay.api.services import Here
from storage.tenancy.api_keys import Scope

router = APIRouter(prefix="/v1", tags=["service"])


class WorkersBody(BaseModel):
    """The workers that have shown a sign of life within the last seconds."""

    present: int
    capacity_streams: float | None = Field(
        description="How many listeners they say they can carry at real time; null while one has not said."
    )


class AdmissionBody(BaseModel):
    """Who is taken, and who may be."""

    speaking: int = Field(description="Contexts of all relays whose listener hears or waits for audio.")
    conversations: int = Field(description="Contexts of all relays that speak or may speak again at any moment.")
    ceiling_streams: float | None = Field(
        description="Streams that newcomers may count on, after what has proved too much; null for no bound."
    )
    queue_lag_jobs: int = Field(description="Sentences that no worker has taken yet.")
    fresh: bool = Field(description="False when this is older than some seconds, since Redis is away.")


class ServiceBody(BaseModel):
    """The service, as one relay sees it."""

    release: str = Field(description="The version of this relay.")
    relays: int
    workers: WorkersBody
    admission: AdmissionBody
    degradation: Literal["none"] = Field(description="The rung of the degradation ladder; there is no other yet.")


class ProblemTitle(BaseModel):
    """What a problem's `type` leads to."""

    code: str
    title: str


@router.get("/operator/service", response_model=ServiceBody, tags=["operator"], **door(Scope.OPERATOR))
async def read_service(services: Here) -> Response:
    """Show the state of the service."""
    state = services.admission.describe()
    supply = state.view.supply
    body = ServiceBody(
        release=version("timbrelay"),
        relays=state.view.relays,
        workers=WorkersBody(present=supply.workers, capacity_streams=_finite(supply.capacity)),
        admission=AdmissionBody(
            speaking=state.total.speaking,
            conversations=state.total.conversations,
            ceiling_streams=_finite(state.ceiling),
            queue_lag_jobs=state.view.queue_lag,
            fresh=state.fresh,
        ),
        degradation="none",
    )
    return tell(body)


@router.get("/problems/{code}", response_model=ProblemTitle, **open_door(304, 404))
async def read_problem(request: Request, code: IdInPath, if_none_match: IfNoneMatch = None) -> Response:
    """Say what an error code means; docs/api.md has the table."""
    return show(request, ProblemTitle(code=code, title=find_title(code)))


def _finite(streams: float) -> float | None:
    return streams if math.isfinite(streams) else None
