"""The settings as the services of the stack have them, for commands that work on storage themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timbrelay.environment import Environment
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.servers import Servers

if TYPE_CHECKING:
    from storage.settings import Settings


def read_settings(environment: Environment, servers: Servers | None = None) -> Settings:
    """What `storage.settings` says, with the data folder's root key file where no other is named.

    Without servers only what lies in files and variables can be asked for.
    """
    from storage.settings import Settings

    urls = {
        "DATABASE_URL": servers.database_url if servers else "postgresql://",
        "DATABASE_OWNER_URL": servers.database_owner_url if servers else "",
        "REDIS_URL": servers.redis_url if servers else "unix://",
    }
    key_file = environment.variables.get("TIMBRELAY_ROOT_KEY_FILE") or DataFolder(environment.home).root_key_file
    return Settings.model_validate({**urls, "root_key_file": key_file})
