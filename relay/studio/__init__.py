"""The studio: a page on which a person gives consent, records a sample in the browser, and has it enrolled."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_PAGE = Path(__file__).resolve().parent / "page"

_HEADERS = {
    # Only what this page brings may run in it, it may talk to its own relay alone, and nobody may frame it: a person
    # types a key and speaks into a microphone here.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; media-src blob:; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class _Page(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def studio_routes() -> list[BaseRoute]:
    """The page under `/studio/`; it needs no key to be read, and one to do anything."""
    return [
        Route("/studio", lambda _: RedirectResponse("/studio/", status_code=308), methods=["GET"]),
        Mount("/studio", _Page(directory=_PAGE, html=True)),
    ]
