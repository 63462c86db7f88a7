"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Port = Annotated[int | None, typer.Option(min=0, max=65535, help="The relay's port; 8080, or any that is free.")]
