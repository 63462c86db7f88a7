"""How the figures are shown: a table for people, JSON for programs, a page for the documentation.

The page is made of the JSON and of nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timbrelay.benchmark.figures import Report, hold_against_targets
from timbrelay.errors import OpsError

Row = Sequence[str]

_METHOD = """\
Each user is a voice agent with a connection of its own: text arrives token by token (40 a second), the person
listens, thinks for 3 to 8 s and interrupts every fifth answer. *First audio* is what the client sees: from sending the
token that completes the first clause to the first audio received; *relay* is from the first complete clause to its
first audio on the way out (turns that were interrupted in their first clause are not in it). An *underrun* is a chunk
that comes after the listener has run dry, with no buffer beyond what arrived, unless its text came less than 200 ms
before. *Overhead* is the part of the relay's first audio in which nothing was computed for the sentence: streams,
queue, relay. *Gap* is between two chunks of a sentence. *Real-time factor* is a sentence's time from hand-over to last
chunk over its length; a worker that does not run ahead of its listeners comes near 1. Percentiles are nearest ranks;
with few turns the higher ones are the slowest turn. *Doors* are measured one after the other, round by round, over warm
connections: from sending a whole text to the first audio received, of WebRTC to the first packet in which something is
heard; what the relay computes for a chunk has its share of authentication, cutting and encoding in it."""


def write_json(path: Path, report: Report) -> dict[str, Any]:
    """What was written, as it will be read. Raises OpsError when the file cannot be written."""
    targets = [asdict(target) for target in hold_against_targets(report)]
    text = json.dumps({**report.as_dict(), "targets": targets}, indent=2) + "\n"
    _write(path, text)
    figures: dict[str, Any] = json.loads(text)
    return figures


def write_page(path: Path, figures: Mapping[str, Any], command: str) -> None:
    """Raises OpsError when the file cannot be written."""
    _write(path, "\n".join(render_page(figures, command)) + "\n")


def render_table(figures: Mapping[str, Any]) -> list[str]:
    """Lines for a terminal: the runs, what broke, the processes and the stages of the last run."""
    lines = [f"On {figures['machine']}:"]
    lines += _align(_run_rows(figures))
    lines += [f"{run['users']} users: {_fate(run)}" for run in figures["results"]]
    for title, rows in _details(figures):
        lines += ["", title, *_align(rows)]
    lines += ["", "Targets", *_align(_target_rows(figures))]
    return lines


def render_page(figures: Mapping[str, Any], command: str) -> list[str]:
    """The lines of docs/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        f"Made by `{command}` on {figures['date']} at commit {figures['commit']}; seed {figures['seed']}. Do not edit.",
        "",
        f"Machine: {figures['machine']}. Everything runs on it: load generator, relay, Valkey, Postgres, worker.",
        "",
        *_METHOD.splitlines(),
        "",
        *_markdown(_run_rows(figures)),
        "",
        *(f"- {run['users']} users: {_fate(run)}." for run in figures["results"]),
    ]
    for title, rows in _details(figures):
        lines += ["", f"## {title}", "", *_markdown(rows)]
    return [*lines, "", "## Targets", "", *_markdown(_target_rows(figures))]


def _run_rows(figures: Mapping[str, Any]) -> list[Row]:
    head = (
        *("users", "turns", "first audio p50 / p95 / p99 ms", "relay p50 / p95 / p99 ms", "overhead p50 / p99 ms"),
        *("underruns", "silence ms", "gap p99 ms", "real-time factor", "refused", "capacity"),
    )
    return [head, *(_run_row(run) for run in figures["results"])]


def _run_row(run: Mapping[str, Any]) -> Row:
    overhead = run["overhead"]
    return (
        str(run["users"]),
        str(run["turns"]),
        _spread(run["first_audio"]),
        _spread(run["relay_first_audio"]),
        f"{overhead['p50']:.1f} / {overhead['p99']:.1f}" if overhead["samples"] else "-",
        str(run["underruns"]),
        f"{run['underrun_ms']:.0f}",
        f"{run['gap_p99_ms']:.0f}",
        f"{run['real_time_factor']:.2f}",
        str(run["refused"]),
        "-" if run["capacity"] is None else f"{run['capacity']:.0f}",
    )


def _details(figures: Mapping[str, Any]) -> Iterable[tuple[str, list[Row]]]:
    runs = figures["results"]
    if any(run["processes"] for run in runs):
        yield "Processor (cores) and memory (MB at the end) of each process", _process_rows(runs)
    if any(run["stages"] for run in runs):
        yield "Where the time goes: mean ms of each, and seconds for a second of audio", _stage_rows(runs)
    if figures["doors"]:
        yield "Every door with the same sentences, one listener", _door_rows(figures)
    if figures["baseline"]:
        yield "Without a service: one process, one thread, the same sentences", _baseline_rows(figures)


def _process_rows(runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    names = list(dict.fromkeys(name for run in runs for name in run["processes"]))
    rows: list[Row] = [("users", *names, "whole machine")]
    for run in runs:
        shares = [run["processes"].get(name) for name in names]
        cells = [f"{share['cpu']:.2f}, {share['rss_mb']:.0f}" if share else "-" for share in shares]
        rows.append((str(run["users"]), *cells, f"{run['machine_cpu']:.2f}"))
    return rows


def _stage_rows(runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    found = [{f"{stage['room']} {stage['name']}": stage for stage in run["stages"]} for run in runs]
    names = list(dict.fromkeys(name for stages in found for name in stages))
    rows: list[Row] = [("users", *names)]
    for run, stages in zip(runs, found, strict=True):
        seen = [stages.get(name) for name in names]
        cells = [f"{stage['mean_ms']:.2f}, {stage['share']:.4f}" if stage else "-" for stage in seen]
        rows.append((str(run["users"]), *cells))
    return rows


def _door_rows(figures: Mapping[str, Any]) -> list[Row]:
    head = ("door", "first audio p50 / p95 ms", "over native ms", "relay CPU ms a chunk")
    rows: list[Row] = [head]
    for door in figures["doors"]:
        cpu = door["relay_cpu_ms_per_chunk"]
        spread = f"{door['first_audio_p50_ms']:.1f} / {door['first_audio_p95_ms']:.1f}"
        rows.append((door["door"], spread, f"{door['over_native_ms']:+.1f}", "-" if cpu is None else f"{cpu:.2f}"))
    if idle := figures["idle_sockets"]:
        added = f"+{idle['added_mb']:.0f} MB on {idle['relay_mb']:.0f} MB"
        rows.append((f"{idle['sockets']:.0f} idle sockets", "-", "-", added))
    return rows


def _baseline_rows(figures: Mapping[str, Any]) -> list[Row]:
    baseline = figures["baseline"]
    rows: list[Row] = [("", "seconds of a core for a second of audio", "times less than one at a time")]
    rows.append(("one sentence after the other", f"{baseline['sequential']:.4f}", "1.0"))
    rows.append((f"in batches of {baseline['rows']}", f"{baseline['batched']:.4f}", f"{baseline['gain']:.1f}"))
    for run in figures["results"]:
        if cost := run["worker_cpu_per_audio"]:
            name = f"the worker with {run['users']} users (all it does)"
            rows.append((name, f"{cost:.4f}", f"{baseline['sequential'] / cost:.1f}"))
    return rows


def _target_rows(figures: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = [("figure", "must", "aim", "reached")]
    return [*rows, *((t["name"], t["must"], t["aim"], t["reached"]) for t in figures["targets"])]


def _fate(run: Mapping[str, Any]) -> str:
    words = "held" if run["broken"] is None else f"not held: {run['broken']}"
    if run["refused"]:
        kept = "kept" if run["promise_kept"] else "not kept"
        words += f"; to those who were taken the promise was {kept}"
        if not run["promise_kept"]:
            words += f" ({run['underruns']} underruns, first audio p95 {run['first_audio']['p95']:.0f} ms)"
    if run["doubt"]:
        words += f"; {run['doubt']}"
    return words


def _spread(spread: Mapping[str, float]) -> str:
    return f"{spread['p50']:.0f} / {spread['p95']:.0f} / {spread['p99']:.0f}" if spread["samples"] else "-"


def _align(rows: Sequence[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _markdown(rows: Sequence[Row]) -> list[str]:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in body)]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise OpsError(f"{path} cannot be written ({error.strerror}); choose another file with --json.") from error
