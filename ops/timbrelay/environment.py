"""What the command line takes from the environment, read once in `main` and passed down."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Environment:
    """Where things are, and which servers were given."""

    variables: Mapping[str, str]
    """The whole environment, for the processes that are started."""

    home: Path
    """The data folder, absolute: `TIMBRELAY_HOME`, else `.timbrelay` in the checkout."""

    runtime_base: Path
    """Where the folder for unix sockets is made: `XDG_RUNTIME_DIR`, else the temporary folder."""

    root: Path
    """The folder with `bundles/` and `samples/`: the checkout, or the working folder for an installed wheel."""

    database_url: str
    """`DATABASE_URL`: a Postgres to use instead of our own; empty when not given."""

    database_owner_url: str
    """`DATABASE_OWNER_URL`: the login that owns its tables; `database_url` when not given."""

    redis_url: str
    """`REDIS_URL`: a Valkey or Redis to use instead of our own; empty when not given."""

    service_role: str
    """`TIMBRELAY_SERVICE_ROLE`: the Postgres role that the services act in."""

    api_key: str
    """`TIMBRELAY_API_KEY`: the tenant's key for `enroll`, `say` and `voices`; empty when not given."""

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """From `os.environ` when nothing else is given."""
        taken = dict(os.environ if variables is None else variables)
        root = find_root()
        database_url = taken.get("DATABASE_URL", "")
        return cls(
            variables=taken,
            home=Path(taken.get("TIMBRELAY_HOME") or root / ".timbrelay").expanduser().absolute(),
            runtime_base=Path(taken.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()),
            root=root,
            database_url=database_url,
            database_owner_url=taken.get("DATABASE_OWNER_URL") or database_url,
            redis_url=taken.get("REDIS_URL", ""),
            service_role=taken.get("TIMBRELAY_SERVICE_ROLE") or "timbrelay_service",
            api_key=taken.get("TIMBRELAY_API_KEY", ""),
        )


def find_root() -> Path:
    """The checkout that this package lies in, or the working folder."""
    checkout = _PACKAGE.parent.parent
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()
