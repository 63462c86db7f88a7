"""Flame graphs of the relay and the workers, drawn by py-spy while they run."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from timbrelay.errors import OpsError, UsageFault

_RATE_HZ = 100
_WRITE_TIMEOUT_S = 30.0
_START_S = 1.0


def find_profiler() -> Path:
    """py-spy's program. Raises UsageFault when it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise UsageFault(f"--profile needs py-spy, which is not installed: `{sys.executable} -m pip install py-spy`.")
    return Path(found)


@asynccontextmanager
async def profiling(profiler: Path, pids: Mapping[str, int], folder: Path, label: str) -> AsyncIterator[list[Path]]:
    """Records each process for as long as this lasts; the paths are there at the end.

    Raises OpsError when the kernel does not let py-spy look (it needs root, or kernel.yama.ptrace_scope=0).
    """
    graphs = {name: folder / f"profile-{label}-{name}.svg" for name in pids}
    running = {name: await _start(profiler, pids[name], graphs[name]) for name in pids}
    paths: list[Path] = []
    try:
        for process in running.values():
            await _check(process)
        yield paths
    finally:
        for process in running.values():
            if process.returncode is None:
                process.send_signal(2)
        for process in running.values():
            await _finish(process)
        paths += [graph for graph in graphs.values() if graph.exists()]


async def _start(profiler: Path, pid: int, graph: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(str(profiler), "record", "--pid", str(pid), "--output", str(graph)),
        *("--rate", str(_RATE_HZ), "--nonblocking", "--threads", "--duration", "unlimited"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _check(process: asyncio.subprocess.Process) -> None:
    """One that cannot look says so at once."""
    try:
        async with asyncio.timeout(_START_S):
            await process.wait()
    except TimeoutError:
        return
    output = (await process.stdout.read()).decode(errors="replace").strip() if process.stdout else ""
    raise OpsError(f"py-spy could not look into process: {output.splitlines()[-1] if output else 'no reason given'}.")


async def _finish(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_WRITE_TIMEOUT_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
