"""Keeps the stack's processes running, and ends them in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from timbrelay.errors import ServiceDied
from timbrelay.stack.log import find_reason, rotate, size, tail
from timbrelay.stack.process import Command, Process

MAX_RESTARTS = 5
WINDOW_S = 60.0
_FIRST_DELAY_S = 0.2
_POLL_S = 0.02


class Tier(IntEnum):
    """The order of stopping: what depends on others goes first."""

    SERVICES = 0
    SERVERS = 1


_STOP_DEADLINES_S = {Tier.SERVICES: 3.0, Tier.SERVERS: 10.0}
"""What a service has begun is taken up again when it is killed; what a server has not written may be lost."""


class RestartBudget:
    """How soon a process that died is started again, and when it is given up. Plain arithmetic over given times."""

    def __init__(self, limit: int = MAX_RESTARTS, window_s: float = WINDOW_S) -> None:
        self._deaths: deque[float] = deque(maxlen=limit)
        self._limit = limit
        self._window_s = window_s

    def take(self, now: float) -> float | None:
        """Seconds until the next start, doubling with each recent death; None when there were too many."""
        while self._deaths and now - self._deaths[0] >= self._window_s:
            self._deaths.popleft()
        if len(self._deaths) == self._limit:
            return None
        self._deaths.append(now)
        return float(_FIRST_DELAY_S * 2 ** (len(self._deaths) - 1))


@dataclass(slots=True)
class _Watched:
    process: Process
    tier: Tier
    log_start: int
    budget: RestartBudget = field(default_factory=RestartBudget)
    restart_at: float | None = None


class Supervisor:
    """Owns processes that append to one log. Not for threads: all calls come from the main one."""

    def __init__(self, log: Path, hurry: Callable[[], bool] = lambda: False) -> None:
        self.log = log
        self._hurry = hurry
        self._watched: list[_Watched] = []

    def start(self, command: Command, tier: Tier) -> Process:
        """Starts a process and keeps it."""
        process = Process(command, self.log)
        # Known before it starts: an interruption in between must not lose it.
        self._watched.append(_Watched(process, tier, size(self.log)))
        process.start()
        return process

    def pids(self) -> dict[str, int]:
        return {watched.process.name: watched.process.pid for watched in self._watched}

    def require_all(self) -> None:
        """For the time of starting up, when a death means a fault that a restart will not mend.

        Raises ServiceDied when a process has ended.
        """
        for watched in self._watched:
            if watched.process.exit_code is not None:
                raise self._died(watched, f"ended with exit code {watched.process.exit_code} while starting")

    def check(self) -> list[str]:
        """Restarts what has died and is due; gives the names. To be called several times a second.

        Raises ServiceDied when a process dies too often.
        """
        rotate(self.log)
        now = time.monotonic()
        return [watched.process.name for watched in self._watched if self._revive(watched, now)]

    def stop(self) -> None:
        """Ends all processes, tier by tier; kills those that are not gone at the deadline. May be called again."""
        for tier in Tier:
            end = time.monotonic() + _STOP_DEADLINES_S[tier]
            members = [watched.process for watched in self._watched if watched.tier is tier]
            for process in members:
                process.ask_to_stop()
            while any(not process.wait(0) for process in members) and time.monotonic() < end and not self._hurry():
                time.sleep(_POLL_S)
            for process in members:
                process.kill()
        self._watched.clear()

    def _revive(self, watched: _Watched, now: float) -> bool:
        if watched.process.exit_code is None:
            return False
        if watched.restart_at is None:
            delay = watched.budget.take(now)
            if delay is None:
                raise self._died(watched, f"died more than {MAX_RESTARTS} times in a minute")
            watched.restart_at = now + delay
        if now < watched.restart_at:
            return False
        watched.restart_at = None
        watched.process.start()
        return True

    def _died(self, watched: _Watched, fate: str) -> ServiceDied:
        reason = find_reason(self.log, watched.log_start)
        return ServiceDied(watched.process.name, fate, self.log, reason, tail(self.log, since=watched.log_start))
