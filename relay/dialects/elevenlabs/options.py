"""What a connection or a request is told in its query (AsyncAPI of ElevenLabs); what is not known is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relay.audio.formats import Format, parse_format
from relay.dialects.languages import check_language
from relay.errors import InvalidMessage

DEFAULT_FORMAT = "mp3_44100_128"
DEFAULT_INACTIVITY_S = 20
MAX_INACTIVITY_S = 180


class _Query(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    output_format: str = DEFAULT_FORMAT
    inactivity_timeout: int = Field(DEFAULT_INACTIVITY_S, ge=1, le=MAX_INACTIVITY_S)
    sync_alignment: bool = False
    enable_ssml_parsing: bool = False
    auto_mode: bool = False
    language_code: str = ""


QUERY_FIELDS = frozenset(_Query.model_fields) - {"language_code"}
"""So that an error can say in which part of a request it is; the language comes with the text over HTTP."""


@dataclass(frozen=True, slots=True)
class Options:
    """What of it makes a difference here."""

    format: Format
    inactivity_s: float
    """How long nothing may be said."""
    sync_alignment: bool
    ssml: bool
    """Whether tags are read as such, and not as text."""
    phrases: bool
    """Whether a piece of text that ends like a sentence is one."""


def read_options(query: Mapping[str, str]) -> Options:
    """Raises InvalidMessage with the parameter at fault."""
    try:
        given = _Query.model_validate(dict(query))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = str(problem["loc"][-1])
        raise InvalidMessage(f"`{field}`: {problem['msg'].lower()}", field=field) from error
    check_language("language_code", given.language_code)
    return Options(
        format=parse_format(given.output_format),
        inactivity_s=given.inactivity_timeout,
        sync_alignment=given.sync_alignment,
        ssml=given.enable_ssml_parsing,
        phrases=given.auto_mode,
    )
