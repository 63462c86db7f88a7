"""Lists as OpenAI gives them: `limit` and `after`, the id of the last object that the client has."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from relay.dialects.openai.errors import refuse_field

Item = TypeVar("Item", bound=BaseModel)


class PageQuery(BaseModel):
    """Which part of a list is wanted."""

    model_config = ConfigDict(frozen=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str, Field(max_length=64)] = ""


class ObjectList(BaseModel, Generic[Item]):
    """A part of a list."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


def read_page(request: Request) -> PageQuery:
    """Raises RequestRefused (400) with the parameter at fault."""
    try:
        return PageQuery.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise refuse_field(error) from error


def make_list(items: list[Item], ids: list[str], more: bool) -> ObjectList[Item]:
    """A part of a list; `ids` are those of its items."""
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return ObjectList(data=items, first_id=first, last_id=last, has_more=more)
