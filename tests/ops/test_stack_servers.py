"""Our own Postgres and Valkey, started for real."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.conftest import wait_until
from tests.databases import find_room
from timbrelay.environment import Environment
from timbrelay.errors import FolderError, ServerError
from timbrelay.stack.binaries import find_postgres, find_valkey, wheel_postgres, wheel_valkey
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.orphans import find_orphans
from timbrelay.stack.process import Identity
from timbrelay.stack.schema import ensure_schema, migrate
from timbrelay.stack.servers import Servers, run_servers
from timbrelay.stack.shim import NOBODY
from timbrelay.stack.supervisor import Supervisor

NO_SERVERS_PATH = "/usr/bin:/bin"
RUN = """
import os, time
from timbrelay.environment import Environment
from timbrelay.stack.folder import DataFolder
from timbrelay.stack.servers import run_servers
from timbrelay.stack.supervisor import Supervisor
environment = Environment.read()
folder = DataFolder(environment.home)
folder.prepare()
with folder.lock(), run_servers(environment, folder, Supervisor(folder.log), durable=False):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    # Directly in the temporary folder: where Postgres has to run as nobody it could not enter pytest's own.
    made = Path(tempfile.mkdtemp(prefix="timbrelay-test-", dir=find_room()))
    yield made
    DataFolder(made).remove_runtime()
    shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def running(home: Path, path: str | None = None, **variables: str) -> Iterator[Servers]:
    environment = Environment.read(
        {**os.environ, "PATH": path or os.environ["PATH"], "TIMBRELAY_HOME": str(home), **variables}
    )
    folder = DataFolder(home)
    folder.prepare()
    with folder.lock(), run_servers(environment, folder, Supervisor(folder.log), durable=False) as servers:
        yield servers


def test_the_services_role_is_held_to_row_level_security(servers: Servers) -> None:
    """The role that services log in as is neither a superuser nor allowed past row-level security."""
    query = """SELECT current_user, rolsuper, rolbypassrls, rolcreatedb, rolcreaterole, rolreplication
               FROM pg_roles WHERE rolname = current_user"""
    with psycopg.connect(servers.database_url) as connection:
        assert connection.execute(query).fetchone() == ("timbrelay_service", False, False, False, False, False)


def test_the_owner_owns_the_database(servers: Servers) -> None:
    """The database belongs to the login for migrations, not to the services."""
    query = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"
    with psycopg.connect(servers.database_owner_url) as connection:
        assert connection.execute(query).fetchone() == ("timbrelay_owner",)


def test_nothing_listens_on_the_network(servers: Servers) -> None:
    """Both servers answer on a unix socket in a folder of this user alone, and nowhere else."""
    with psycopg.connect(servers.database_owner_url) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.config_get("port") == {"port": "0"}
    assert servers.postgres is not None
    assert servers.postgres.runtime.stat().st_mode & 0o777 == 0o700


def test_valkey_never_drops_what_it_holds(servers: Servers) -> None:
    """Valkey writes what it is given to disk, and refuses writes rather than evict when its memory is full."""
    with redis.Redis.from_url(servers.redis_url, decode_responses=True) as client:
        wanted = {"appendonly": "yes", "maxmemory-policy": "noeviction", "maxmemory": str(256 * 2**20)}
        assert client.config_get(*wanted) == wanted


def test_data_is_there_after_a_restart(home: Path) -> None:
    """A second start on the same folder finds what the first one left, in both servers."""
    with running(home) as first:
        with psycopg.connect(first.database_owner_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        with redis.Redis.from_url(first.redis_url) as client:
            client.set("kept", "yes")
    with running(home) as second:
        with psycopg.connect(second.database_owner_url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        with redis.Redis.from_url(second.redis_url) as client:
            assert client.get("kept") == b"yes"


def test_migrations_run_once(home: Path) -> None:
    """A database that carries the mark of these migrations is not migrated again; one without it is."""
    environment = Environment.read({"TIMBRELAY_HOME": str(home)})
    with running(home) as servers:
        assert ensure_schema(servers, environment)
        assert not ensure_schema(servers, environment)
        with psycopg.connect(servers.database_owner_url, autocommit=True) as connection:
            connection.execute("COMMENT ON DATABASE timbrelay IS 'another'")
        assert ensure_schema(servers, environment)


def test_a_database_that_went_back_is_brought_forward_at_the_next_start(home: Path) -> None:
    """An older release finds its revision, and this one does not take the database for its own any more."""
    environment = Environment.read({"TIMBRELAY_HOME": str(home)})
    with running(home) as servers:
        ensure_schema(servers, environment)
        migrate(servers, environment, "0001")
        with psycopg.connect(servers.database_owner_url) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        assert ensure_schema(servers, environment)
        assert not ensure_schema(servers, environment)
        with pytest.raises(ServerError, match="0999"):
            migrate(servers, environment, "0999")


def test_the_wheels_serve_where_the_path_has_nothing(home: Path) -> None:
    """Without servers on the PATH, those of the wheels are run."""
    wheel = wheel_postgres()
    assert wheel is not None
    assert find_valkey(NO_SERVERS_PATH) == wheel_valkey()
    assert find_postgres(NO_SERVERS_PATH).postgres == wheel / "postgres"
    with running(home, NO_SERVERS_PATH) as servers, psycopg.connect(servers.database_url) as connection:
        assert connection.info.server_version // 10000 == 18


def test_a_pair_on_the_path_comes_first(tmp_path: Path) -> None:
    """A `postgres` and an `initdb` of one version on the PATH win over the wheel; an old or unequal pair does not."""
    for versions, expected in ((("17", "17"), 17), (("13", "13"), 18), (("17", "16"), 18)):
        for name, version in zip(("postgres", "initdb"), versions, strict=True):
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}.4 (Debian)'\n")
            program.chmod(0o755)
        assert find_postgres(str(tmp_path)).major == expected


def test_another_versions_data_is_refused(home: Path) -> None:
    """Data that another major version made is not touched; the error says which programs it needs."""
    (home / "postgres").mkdir(mode=0o700)
    (home / "postgres" / "PG_VERSION").write_text("9\n")
    refused = pytest.raises(
        FolderError, match=r"was made by Postgres 9, and its programs were not found\. Put those of"
    )
    with refused, running(home):
        pass
    assert (home / "postgres" / "PG_VERSION").read_text() == "9\n"
    assert not find_orphans(home / "valkey")


def test_an_interrupted_making_is_begun_anew(home: Path) -> None:
    """What an interrupted first start left half made does not stand in the way of the next."""
    half = home / "postgres.new"
    half.mkdir(mode=0o700)
    (half / "PG_VERSION").write_text("18\n")
    with running(home) as servers, psycopg.connect(servers.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not half.exists()


def test_one_folder_has_one_stack(home: Path) -> None:
    """A second stack on the same folder is refused while the first one runs, with its process and the way out."""
    folder = DataFolder(home)
    folder.prepare()
    with running(home):
        assert folder.is_running()
        refused = pytest.raises(
            FolderError, match=rf"in use by another stack \(process {os.getpid()}\)\. Stop that one"
        )
        with refused, folder.lock():
            pass
    assert not folder.is_running()


def test_a_killed_supervisor_leaves_nothing(home: Path) -> None:
    """After kill -9 of the supervisor both servers end, and the next start takes over the folder at once."""
    environment = {**os.environ, "TIMBRELAY_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], env=environment, stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "up\n"
        left = Path((home / "runtime").read_text())
        assert find_orphans(home / "postgres")
        assert find_orphans(home / "valkey")
        supervisor.kill()
    with running(home):
        assert not left.exists()
    wait_until(lambda: not find_orphans(home / "postgres") + find_orphans(home / "valkey"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_the_database_is_made_leaves_nothing(home: Path, number: signal.Signals) -> None:
    """A signal in the midst of making the database ends everything that was started."""
    script = f"from timbrelay.interruption import Interruption\nInterruption().install()\n{RUN}"
    environment = {**os.environ, "TIMBRELAY_HOME": str(home)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL) as supervisor:
        wait_until(lambda: find_orphans(home / "postgres.new"))
        supervisor.send_signal(number)
    assert supervisor.returncode != 0
    folders = [home / name for name in ("postgres.new", "postgres", "valkey")]
    wait_until(lambda: not any(map(find_orphans, folders)))


def test_a_process_id_of_yesterday_does_not_matter(home: Path) -> None:
    """A lock file that a crash left behind, with an id that is another program's by now, does not stop the start."""
    with running(home):
        left = (home / "postgres" / "postmaster.pid").read_text().splitlines()
    (home / "postgres" / "postmaster.pid").write_text("\n".join(["1", *left[1:]]) + "\n")
    with running(home) as servers, psycopg.connect(servers.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_servers_given_by_url_are_not_started(home: Path) -> None:
    """With both URLs given nothing is started, and the owner's login is the services' when it is not given."""
    given = {"DATABASE_URL": "postgresql://db.example/x", "REDIS_URL": "redis://redis.example/0"}
    with running(home, **given) as servers:
        assert servers.postgres is None
        assert servers.valkey is None
        assert servers.database_owner_url == servers.database_url == given["DATABASE_URL"]
        assert servers.redis_url == given["REDIS_URL"]
    assert not (home / "postgres").exists()


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    """When Postgres does not come up, the error carries the server's own words."""
    with running(home):
        pass
    (home / "postgres" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(ServerError, match="no_such_setting"), running(home):
        pass


def test_libpqs_variables_do_not_lead_astray(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PGPORT or PGHOST that the user has set for another database changes nothing for ours."""
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "db.example")
    with running(home) as servers, psycopg.connect(servers.database_url) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("timbrelay_service",)


def test_a_long_runtime_folder_gives_way_to_a_short_one(home: Path, tmp_path: Path) -> None:
    """A socket's path must be short, so that a runtime folder with a long one is not used."""
    folder = DataFolder(home)
    long = tmp_path / ("x" * 80)
    long.mkdir()
    made = folder.make_runtime(long)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(made / ".s.PGSQL.5432"))
        assert made.stat().st_mode & 0o777 == 0o700
    finally:
        folder.remove_runtime()
    assert not made.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_where_namespaces_are_refused_postgres_runs_as_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without user namespaces the data goes to the user nobody, and back to root where there are some again."""
    with running(home):
        pass
    nobody = Identity.NOBODY
    with monkeypatch.context() as refused:
        refused.setattr("timbrelay.stack.postgres.choose_identity", lambda _: nobody)
        with running(home) as servers, psycopg.connect(servers.database_url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert (home / "postgres").stat().st_uid == NOBODY
            assert home.stat().st_mode & 0o777 == 0o710
    with running(home) as servers, psycopg.connect(servers.database_url):
        assert (home / "postgres").stat().st_uid == 0
