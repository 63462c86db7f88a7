"""Wordings that a person can be asked to agree to, one a language, each to be read and one to be spoken.

In the manner of the phrases for OpenAI's voice consents: fixed, versioned, short. A tenant may use its own; what counts
is that the consent keeps which version it was. A changed word is a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from relay.api.answers import show
from relay.api.routes import IfNoneMatch, open_door

router = APIRouter(prefix="/v1/consents/statements", tags=["consents"])

VERSION = "2026-11"
"""Of all the wordings below."""

WRITTEN: Mapping[str, str] = {
    "en": (
        "I, {signer}, agree that {tenant} makes an artificial voice from recordings of my voice, and that it speaks for"
        " this purpose: {purpose}. To do so, {tenant} stores a recording and a digital print of my voice. I may"
        " withdraw this consent at any time; the voice then falls silent and is deleted."
    ),
    "de": (
        "Ich, {signer}, bin damit einverstanden, dass {tenant} aus Aufnahmen meiner Stimme eine künstliche Stimme"
        " herstellt und sie zu diesem Zweck sprechen lässt: {purpose}. Dafür speichert {tenant} eine Aufnahme und einen"
        " digitalen Abdruck meiner Stimme. Ich kann diese Einwilligung jederzeit widerrufen; die Stimme verstummt dann"
        " und wird gelöscht."
    ),
    "fr": (
        "Moi, {signer}, j’accepte que {tenant} crée une voix artificielle à partir d’enregistrements de ma voix et"
        " l’utilise dans le but suivant : {purpose}. Pour cela, {tenant} conserve un enregistrement et une empreinte"
        " numérique de ma voix. Je peux retirer ce consentement à tout moment ; la voix se tait alors et elle est"
        " supprimée."
    ),
    "es": (
        "Yo, {signer}, acepto que {tenant} cree una voz artificial a partir de grabaciones de mi voz y la utilice con"
        " esta finalidad: {purpose}. Para ello, {tenant} guarda una grabación y una huella digital de mi voz. Puedo"
        " retirar este consentimiento en cualquier momento; entonces la voz deja de hablar y se elimina."
    ),
}
SPOKEN: Mapping[str, str] = {
    "en": "This is my own voice, and I agree that {tenant} makes an artificial voice of it.",
    "de": "Das ist meine eigene Stimme, und ich bin damit einverstanden, dass {tenant} daraus eine künstliche Stimme"
    " macht.",
    "fr": "C’est ma propre voix, et j’accepte que {tenant} en fasse une voix artificielle.",
    "es": "Esta es mi propia voz, y acepto que {tenant} haga con ella una voz artificial.",
}


class StatementTemplate(BaseModel):
    """A wording in one language."""

    language: str
    version: str = Field(description="What to send as `statement_version`.")
    text: str = Field(description="To be read and agreed to; put values in for {signer}, {tenant} and {purpose}.")
    spoken: str = Field(description="To be said aloud, where the consent has a recording; has {tenant}.")


class StatementTemplates(BaseModel):
    """All wordings there are."""

    statements: list[StatementTemplate]


TEMPLATES = StatementTemplates(
    statements=[
        StatementTemplate(language=language, version=VERSION, text=text, spoken=SPOKEN[language])
        for language, text in WRITTEN.items()
    ]
)
_OPEN: dict[str, Any] = open_door(304)


@router.get("", response_model=StatementTemplates, **_OPEN)
async def list_statements(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    """List the wordings that come with the service."""
    return show(request, TEMPLATES)
