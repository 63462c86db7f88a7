"""`timbrelay bench-storage`: how long storage takes with many voices in it, in a database that is made and dropped."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from timbrelay.benchmark.machine import describe_machine, find_commit, today
from timbrelay.benchmark.storage.measuring import Measured, measure
from timbrelay.benchmark.storage.operations import plan_operations
from timbrelay.benchmark.storage.page import Findings, render_page, render_table
from timbrelay.benchmark.storage.population import Shape, populate
from timbrelay.console import Bar, say, show_progress
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, ServerError
from timbrelay.interruption import Interruption
from timbrelay.stack.local import open_servers
from timbrelay.stack.schema import migrate
from timbrelay.stack.servers import Servers
from timbrelay.stack.settings import read_settings

PAGE = Path("docs") / "benchmarks-storage.md"


def run(environment: Environment, interruption: Interruption, voices: int, seed: int, record: bool) -> None:
    """Prints the figures. Raises OpsError when a limit is not held, after they are printed."""
    shape = Shape(voices)
    with (
        show_progress("Making a database") as bar,
        open_servers(environment) as servers,
        _scratch_database(servers) as scratch,
    ):
        migrate(scratch, environment)
        measured, version = interruption.run(_measure(environment, scratch, bar, shape, seed))
    findings = Findings(describe_machine(), today(), find_commit(environment.root), version, shape, tuple(measured))
    for line in render_table(findings):
        say(line)
    if record:
        (environment.root / PAGE).write_text("\n".join(render_page(findings)) + "\n")
        say(f"Recorded in {PAGE}.")
    broken = [item.name for item in measured if not item.held or item.scans]
    if broken:
        raise OpsError(f"Not within its limits: {', '.join(broken)}.")


async def _measure(
    environment: Environment, servers: Servers, bar: Bar, shape: Shape, seed: int
) -> tuple[list[Measured], str]:
    from sqlalchemy import text

    from storage.database import Database
    from storage.encryption.envelope import new_key
    from storage.encryption.keyring import Keyring
    from storage.encryption.providers.local import LocalKeys

    settings = read_settings(environment, servers)
    owner, database = Database.for_owner(settings), Database.for_service(settings, pool_size=1)
    # What is sealed here goes with the database.
    keyring = Keyring(LocalKeys([new_key()]))
    try:
        bar.step(f"Enrolling {shape.voices} voices")
        residents = await populate(owner, database, keyring, shape, lambda made: bar.advance_to(made, shape.voices))
        measured = []
        for operation in plan_operations(database, keyring, residents, random.Random(seed)):  # noqa: S311
            bar.step(f"Measuring: {operation.name}")
            measured.append(await measure(database, operation))
        async with database.transaction() as connection:
            version = (await connection.execute(text("SHOW server_version"))).scalar()
    finally:
        await database.close()
        await owner.close()
    return measured, str(version)


@contextmanager
def _scratch_database(servers: Servers) -> Iterator[Servers]:
    """The same servers with a database of its own. Raises ServerError when the owner may not make one."""
    import psycopg
    from psycopg import sql
    from sqlalchemy import make_url

    name = f"timbrelay_bench_{secrets.token_hex(4)}"

    def named(url: str) -> str:
        return make_url(url).set(database=name).render_as_string(hide_password=False)

    try:
        with psycopg.connect(servers.database_owner_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except psycopg.Error as error:
        raise ServerError(f"No database can be made to measure in: {error}.") from error
    try:
        yield replace(
            servers, database_url=named(servers.database_url), database_owner_url=named(servers.database_owner_url)
        )
    finally:
        with psycopg.connect(servers.database_owner_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
