"""How a relay is after it was treated badly: the same process, nothing left open, and a log that tells of no fault."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest

from tests.conftest import RunningStack
from tests.system.doors import DOORS, Ask
from tests.system.fuzzing.texts import CANARY

SETTLED_S = 30.0
"""Longer than the relay waits for anybody: send timeout, idle timeout, resumption, and what a close frame may take."""
_FAULTS = re.compile(
    r"Traceback|broke\b|never retrieved|never awaited|was destroyed but|\"level\": ?\"(?:error|critical)\"|Fatal Python"
)
_GAUGES = ("timbrelay_connections", "timbrelay_contexts", "timbrelay_webrtc_peers")
_PAGE = 4096


class Vitals:
    """Of one relay; `secrets` are what its log may not hold."""

    def __init__(self, stack: RunningStack, secrets: Iterable[str]) -> None:
        self._stack = stack
        self._pids = {name: stack.processes[name].pid for name in ("relay", "worker")}
        self._read = stack.log.stat().st_size
        self._secrets = (CANARY, *secrets)

    async def settle(self, within_s: float = SETTLED_S) -> None:
        """Wait until nobody and nothing of them is left; fails when something is."""
        async with httpx2.AsyncClient(timeout=10) as client:
            try:
                async with asyncio.timeout(within_s):
                    while any((left := await self._gauges(client)).values()):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            except TimeoutError:
                pytest.fail(f"still there after {within_s} s: {left}")

    def check(self) -> None:
        """The processes are those that were started, and their log has neither a fault nor a secret."""
        for name, pid in self._pids.items():
            assert self._stack.processes[name].pid == pid
            assert self._stack.processes[name].exit_code is None, name
        with self._stack.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._read)
            lines = log.read().splitlines()
        faults = [_shorten(line) for line in lines if _FAULTS.search(line)]
        assert not faults, "\n".join(faults[:5])
        told = [line for line in lines for secret in self._secrets if secret in line]
        assert not told, told[0]

    async def check_doors(self, expected: dict[Ask, bytes]) -> None:
        """At every door one or the other is served, in the voice that was his before."""
        asks = list(itertools.islice(itertools.cycle(expected), len(DOORS)))
        heard = await asyncio.gather(*(door(ask) for door, ask in zip(DOORS.values(), asks, strict=True)))
        for name, ask, pcm in zip(DOORS, asks, heard, strict=True):
            assert pcm == expected[ask], name

    def resident_bytes(self) -> int:
        """What the relay holds in memory; skips where /proc does not say."""
        statm = Path(f"/proc/{self._pids['relay']}/statm")
        if not statm.exists():
            pytest.skip("what a process holds is read from /proc")
        return int(statm.read_text().split()[1]) * _PAGE

    async def _gauges(self, client: httpx2.AsyncClient) -> dict[str, float]:
        text = (await client.get(f"{self._stack.metrics_urls['relay']}/metrics")).text
        return {
            name: float(found[1]) if (found := re.search(rf"^{name} (\S+)$", text, re.M)) else 0 for name in _GAUGES
        }


def _shorten(line: str) -> str:
    """An event of the log, and of a traceback its last lines."""
    try:
        event = json.loads(line)
    except ValueError:
        return line
    return f"{event['event']}: {' '.join(event.get('exception', '').splitlines()[-6:])}"
