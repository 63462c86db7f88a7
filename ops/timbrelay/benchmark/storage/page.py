"""The figures for people: a table on the terminal, and docs/benchmarks-storage.md with the plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timbrelay.benchmark.storage.measuring import CALLS, EXPLAINED, Measured, Spread
from timbrelay.benchmark.storage.population import Shape

_METHOD = """\
{shape.tenants} tenants with {shape.keys} API keys each; the first has half of all voices, the others share the rest.
{shape.enrolled} voices of the first and one of each other were enrolled as ever; the rest are copies of their rows
under ids of their own, with data keys, versions and aliases, so that tables and indexes are as large as they would be;
recordings are 64 bytes, since Postgres keeps longer ones outside of the rows. *Call* is what the caller waits for: a
transaction with its set-up, its queries and its end, one caller at a time, in Python. *Database* is Postgres' own
planning and execution time of the queries (EXPLAIN ANALYZE, whose clock adds to it). Row-level security is in force,
as it is in service. Percentiles over {calls} calls, and {explained} explained ones."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured where."""

    machine: str
    date: str
    commit: str
    postgres: str
    shape: Shape
    measured: tuple[Measured, ...]


def render_table(findings: Findings) -> list[str]:
    """Lines for a terminal."""
    rows = _rows(findings.measured)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [f"{findings.shape.voices} voices on {findings.machine}:", *lines]


def render_page(findings: Findings) -> list[str]:
    """The lines of docs/benchmarks-storage.md."""
    head, *rows = _rows(findings.measured)
    lines = [
        "# Benchmarks of storage",
        "",
        f"Made by `./dev bench-storage --voices {findings.shape.voices} --record` on {findings.date} at commit"
        f" {findings.commit}. Do not edit.",
        "",
        f"Machine: {findings.machine}. Postgres {findings.postgres}, {findings.shape.voices} voices.",
        "",
        *_METHOD.format(shape=findings.shape, calls=CALLS, explained=EXPLAINED).splitlines(),
        "",
        _markdown(head),
        _markdown(["---"] * len(head)),
        *map(_markdown, rows),
        "",
        "## Plans",
    ]
    for measured in findings.measured:
        lines += ["", f"### {measured.name}"]
        for plan in measured.plans:
            lines += ["", "```text", *plan.splitlines(), "```"]
    return lines


def _rows(measured: Sequence[Measured]) -> list[list[str]]:
    head = [
        "operation",
        "call p50 / p95 / p99 ms",
        "database p50 / p95 / p99 ms",
        "must (p95)",
        "held",
        "whole table read",
    ]
    return [head, *(_row(item) for item in measured)]


def _row(item: Measured) -> list[str]:
    where = "call" if item.whole else "database"
    return [
        item.name,
        _spread(item.call),
        _spread(item.database),
        f"{where} < {item.limit_ms:g} ms",
        "yes" if item.held else "NO",
        "YES" if item.scans else "no",
    ]


def _spread(spread: Spread) -> str:
    return f"{spread.p50:.2f} / {spread.p95:.2f} / {spread.p99:.2f}"


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
