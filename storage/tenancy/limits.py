"""How much of the service a tenant may use."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """What the operator grants a tenant; the column holds only what differs from the defaults."""

    # A limit that a later release adds does not trouble this one.
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    requests_per_minute: int = Field(default=600, ge=0, le=1_000_000)
    """Requests over HTTP."""

    uploads_per_minute: int = Field(default=30, ge=0, le=100_000)
    """Recordings, of voices and of consents."""

    contexts: int = Field(default=32, ge=0, le=100_000)
    """Contexts that are open at once."""

    characters_per_day: int = Field(default=2_000_000, ge=0, le=10**12)
    """Characters that are spoken in a day (UTC)."""

    voices: int = Field(default=10_000, ge=0, le=10_000_000)
    """Voices that are not deleted."""

    consents: int = Field(default=20_000, ge=0, le=20_000_000)
    """Consents that are not deleted; a voice may have one for each recording that it was given."""
