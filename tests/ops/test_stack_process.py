"""Processes and their supervisor: started, watched, restarted, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from timbrelay.errors import ServiceDied
from timbrelay.stack.process import Command, Process, choose_identity, run_to_end
from timbrelay.stack.shim import EXIT_NOT_EXECUTABLE
from timbrelay.stack.supervisor import MAX_RESTARTS, RestartBudget, Supervisor, Tier

DEADLINE_S = 20.0
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "log")
    yield made
    made.stop()


def shell(script: str, folder: Path, name: str = "shell") -> Command:
    return Command(name, ("/bin/sh", "-c", script), folder, dict(os.environ))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    """What a process writes to either of its outputs is appended to the log."""
    log = tmp_path / "log"
    log.write_text("before\n")
    assert run_to_end(shell("echo out; echo err >&2", tmp_path), log, DEADLINE_S) == 0
    assert log.read_text() == "before\nout\nerr\n"


def test_a_deadline_ends_a_program(tmp_path: Path) -> None:
    """A program that runs past its deadline is killed, and has no exit code."""
    assert run_to_end(shell("exec sleep 60", tmp_path), tmp_path / "log", 0.2) is None


def test_a_program_that_is_not_there_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """A command whose program does not exist ends with the shim's exit code, and the log says why."""
    command = Command("missing", ("/nonexistent/program",), tmp_path, {})
    assert run_to_end(command, tmp_path / "log", DEADLINE_S) == EXIT_NOT_EXECUTABLE
    assert "cannot execute /nonexistent/program" in (tmp_path / "log").read_text()


def test_an_ordinary_user_stays_itself_and_root_becomes_nobody(tmp_path: Path) -> None:
    """A program that refuses root sees the user nobody; for an ordinary user nothing changes."""
    identity = choose_identity(Path(sys.executable))
    command = Command("id", ("/bin/sh", "-c", "id -u"), tmp_path, dict(os.environ), identity)
    assert run_to_end(command, tmp_path / "log", DEADLINE_S) == 0
    expected = os.geteuid() or 65534
    assert (tmp_path / "log").read_text().strip() == str(expected)


def test_a_killed_parent_takes_its_processes_along(tmp_path: Path) -> None:
    """After kill -9 of the process that started it, a process ends too, whatever signals it ignores."""
    script = (
        "import os, time; from pathlib import Path; from timbrelay.stack.process import Command, Process;"
        f"p = Process(Command('x', ('/bin/sh', '-c', {STUBBORN!r}), Path('/'), dict(os.environ)), Path('log'));"
        "p.start(); print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until(lambda: (tmp_path / "log").read_text() == "up\n")
        parent.kill()
    wait_until(lambda: not is_alive(pid))


def test_a_terminals_interrupt_does_not_reach_a_process(tmp_path: Path) -> None:
    """A process is in a session of its own, so that Ctrl-C reaches the supervisor only."""
    process = Process(shell("exec sleep 60", tmp_path), tmp_path / "log")
    process.start()
    try:
        wait_until(lambda: os.getsid(process.pid) == process.pid)
    finally:
        process.kill()


def test_stop_ends_services_before_servers(supervisor: Supervisor, tmp_path: Path) -> None:
    """Servers are asked to stop only when the services that stand on them are gone."""
    say_goodbye = "trap 'echo {}; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    supervisor.start(shell(say_goodbye.format("server"), tmp_path), Tier.SERVERS)
    supervisor.start(shell(say_goodbye.format("service"), tmp_path), Tier.SERVICES)
    wait_until(lambda: supervisor.log.read_text().count("up") == 2)
    supervisor.stop()
    assert supervisor.log.read_text().split()[-2:] == ["service", "server"]


def test_who_hurries_does_not_wait_for_the_stubborn(tmp_path: Path) -> None:
    """When whoever waits has asked twice, what does not end is killed at once."""
    supervisor = Supervisor(tmp_path / "log", hurry=lambda: True)
    process = supervisor.start(shell(STUBBORN, tmp_path), Tier.SERVICES)
    wait_until(lambda: "up" in supervisor.log.read_text())
    supervisor.stop()
    assert process.exit_code == -signal.SIGKILL
    supervisor.stop()


def test_a_process_that_dies_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    """A process that dies is started again after a short while."""
    process = supervisor.start(shell("exec sleep 60", tmp_path), Tier.SERVICES)
    first = process.pid
    process.kill()
    wait_until(lambda: supervisor.check() == ["shell"])
    assert process.pid != first
    assert process.exit_code is None


def test_a_process_that_dies_while_starting_is_a_fault(supervisor: Supervisor, tmp_path: Path) -> None:
    """While the stack starts a death is final, and the error gives the reason that the process logged."""
    reason = '{"level": "error", "reason": "the bundle is damaged; fetch it again"}'
    process = supervisor.start(shell(f"echo '{reason}'; exit 3", tmp_path, "worker"), Tier.SERVICES)
    assert process.wait(DEADLINE_S)
    with pytest.raises(ServiceDied, match="worker ended with exit code 3 while starting: the bundle is damaged"):
        supervisor.require_all()


def test_an_unexplained_death_shows_the_end_of_the_log(supervisor: Supervisor, tmp_path: Path) -> None:
    """Without a reason in the log, the error shows the last lines of it."""
    process = supervisor.start(shell("echo first; echo last words; exit 1", tmp_path), Tier.SERVICES)
    assert process.wait(DEADLINE_S)
    with pytest.raises(ServiceDied, match=r"The last lines of .*log:\n  first\n  last words"):
        supervisor.require_all()


def test_a_budget_backs_off_and_runs_out() -> None:
    """Each death within the window doubles the wait; one too many ends the patience."""
    budget = RestartBudget()
    waits = [budget.take(float(second)) for second in range(MAX_RESTARTS + 1)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, None]


def test_a_budget_forgets_what_is_long_ago() -> None:
    """Deaths outside the window do not count."""
    budget = RestartBudget(limit=2, window_s=60)
    assert [budget.take(now) for now in (0.0, 1.0, 60.0, 60.5, 61.0)] == [0.2, 0.4, 0.4, None, 0.4]
