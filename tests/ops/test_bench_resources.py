"""timbrelay.benchmark.resources and .stages: what processes take and where the time goes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from timbrelay.benchmark import stages
from timbrelay.benchmark.resources import (
    Snapshot,
    Usage,
    compare,
    is_known,
    machine_share,
    parse_busy,
    parse_stat,
    take_snapshot,
)

linux = pytest.mark.skipif(not is_known(), reason="this machine has no /proc")

STAT = (
    "42 (a (strange) name) S 7 42 42 0 -1 4194560 100 0 0 0 250 50 30 20 20 0 1 0 100 1000000 512 18446744073709551615"
)


@linux
def test_a_line_of_proc_is_read_whatever_the_name() -> None:
    """Parent, the time of the process and of the children that ended, and memory."""
    entry, tick_s, page = parse_stat(STAT), 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert (entry.parent, entry.usage.rss_bytes) == (7, 512 * page)
    assert entry.usage.cpu_s == pytest.approx(350 * tick_s)


@linux
def test_idling_is_not_work() -> None:
    """Of the machine's time everything counts but idle and waiting for a disk."""
    stat = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3\n"
    assert parse_busy(stat) == pytest.approx((100 + 20 + 30 + 6 + 7 + 8) / os.sysconf("SC_CLK_TCK"))


@linux
def test_a_process_is_counted_with_what_it_started() -> None:
    """A shell that has a child hold memory holds it; the load generator is counted alone."""
    hold = "import sys; held = bytearray(64 << 20); print('held', flush=True); sys.stdin.read()"
    shell = ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, hold]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        snapshot = take_snapshot({"shell": process.pid, "gone": 2**30}, os.getpid())
        process.communicate()
    assert snapshot.usages["shell"].rss_bytes > 64 << 20
    assert "gone" not in snapshot.usages
    assert snapshot.usages["load generator"].rss_bytes > 0


def test_shares_are_what_was_added_between_two_moments() -> None:
    """Cores by time, memory at both ends; a process that was not there at both has no share."""
    begin = Snapshot(10.0, {"worker": Usage(5.0, 100 << 20)}, 50.0)
    end = Snapshot(14.0, {"worker": Usage(7.0, 110 << 20), "new": Usage(1.0, 1)}, 56.0)
    shares = compare(begin, end)
    assert list(shares) == ["worker"]
    assert (shares["worker"].cpu, shares["worker"].rss_mb, shares["worker"].rss_begin_mb) == (0.5, 110.0, 100.0)
    assert machine_share(begin, end) == 1.5


METRICS = """\
# TYPE timbrelay_worker_stage_seconds histogram
timbrelay_worker_stage_seconds_bucket{{le="0.01",stage="decode"}} {low}
timbrelay_worker_stage_seconds_bucket{{le="0.1",stage="decode"}} {all}
timbrelay_worker_stage_seconds_bucket{{le="+Inf",stage="decode"}} {all}
timbrelay_worker_stage_seconds_count{{stage="decode"}} {all}
timbrelay_worker_stage_seconds_sum{{stage="decode"}} {total}
# TYPE timbrelay_late_chunks_total counter
timbrelay_late_chunks_total {late}
# TYPE timbrelay_capacity_streams gauge
timbrelay_capacity_streams {capacity}
"""


def test_stages_are_what_the_processes_added_during_a_run() -> None:
    """Several workers add up; the percentile is the histogram's edge."""
    begin = stages.parse([METRICS.format(low=5, all=10, total=1.0, late=1, capacity=24)])
    shown = METRICS.format(low=60, all=110, total=3.0, late=4, capacity=20)
    end = stages.parse([shown, METRICS.format(low=10, all=10, total=0.1, late=0, capacity="+Inf")])
    (stage,) = stages.compare(begin, end, audio_s=10.0)
    assert (stage.room, stage.name, stage.count) == ("worker", "decode", 110)
    assert stage.mean_ms == pytest.approx(1000 * 2.1 / 110, abs=1e-3)
    assert (stage.p99_ms, stage.share) == (100.0, 0.21)
    assert (end.late - begin.late, end.capacity) == (3, 20.0)


def test_without_stages_there_is_nothing_to_show() -> None:
    """A release without these figures has none, and that is no fault."""
    nothing = stages.parse(["# TYPE other counter\nother_total 3\n"])
    assert stages.compare(nothing, nothing, audio_s=0.0) == []
    assert nothing.capacity is None
