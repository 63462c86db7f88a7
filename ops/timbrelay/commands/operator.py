"""`timbrelay keys` and `timbrelay migrate`: what an operator does to the database as its owner."""

from __future__ import annotations

import re

from timbrelay import keys
from timbrelay.console import say
from timbrelay.environment import Environment
from timbrelay.errors import UsageFault
from timbrelay.interruption import Interruption
from timbrelay.stack.local import open_servers
from timbrelay.stack.schema import migrate


def run_create(environment: Environment, interruption: Interruption, order: keys.Order) -> None:
    """Prints a new key, this once, and its id."""
    with open_servers(environment) as servers:
        key_id, key = interruption.run(keys.create(servers, order))
    say(f"key     {key}")
    say(f"key id  {key_id}")


def run_revoke(environment: Environment, interruption: Interruption, key_id: str) -> None:
    """Ends a key."""
    wanted = keys.parse_key_id(key_id)
    with open_servers(environment) as servers:
        interruption.run(keys.revoke(servers, wanted))
    say(f"The key {key_id} is revoked.")


def run_migrate(environment: Environment, revision: str = "") -> None:
    """Brings the database to this release's revision, or back to an older one. Raises UsageFault for what is none."""
    if revision and not re.fullmatch(r"\d{4}", revision):
        raise UsageFault(f"--to takes a revision such as 0001, not {revision!r}.")
    with open_servers(environment) as servers:
        migrate(servers, environment, revision or "head")
    say(f"The database is at {f'revision {revision}' if revision else 'this release’s revision'}.")
