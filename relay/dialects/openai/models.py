"""`GET /v1/models`: names that clients may give; all of them, and any other, speak in the same way."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from relay.errors import RequestRefused

NAMES = ("timbrelay", "gpt-4o-mini-tts", "tts-1", "tts-1-hd")
CREATED = 1_793_491_200
"""2026-11-01, of our own model."""


class Model(BaseModel):
    """A name for the one model that there is."""

    id: str
    object: Literal["model"] = "model"
    created: int = CREATED
    owned_by: str = "timbrelay"


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[Model]


def list_models() -> ModelList:
    """Ours first, then those that clients ask for unless they are told otherwise."""
    return ModelList(data=[Model(id=name) for name in NAMES])


def find_model(name: str) -> Model:
    """Raises RequestRefused (404)."""
    if name not in NAMES:
        text = f"there is no model {name[:64]!r}; these are: {', '.join(NAMES)}. Speech takes any name"
        raise RequestRefused(404, "model_not_found", text, field="model")
    return Model(id=name)
