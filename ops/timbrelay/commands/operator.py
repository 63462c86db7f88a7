"""`timbrelay keys` and `timbrelay migrate`: what an operator does to the database as its owner."""

from __future__ import annotations

from timbrelay import keys
from timbrelay.console import say
from timbrelay.environment import Environment
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


def run_migrate(environment: Environment) -> None:
    """Brings the database to this release's revision."""
    with open_servers(environment) as servers:
        migrate(servers, environment)
    say("The database is at this release's revision.")
