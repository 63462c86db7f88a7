"""The stack's log: bounded, and read for the reason of a death."""

from __future__ import annotations

from pathlib import Path

from timbrelay.stack.log import find_reason, rotate, tail


def test_a_short_log_stays(tmp_path: Path) -> None:
    """A log within its bound is not touched."""
    log = tmp_path / "stack.log"
    log.write_text("12345")
    assert not rotate(log, max_bytes=5)
    assert log.read_text() == "12345"


def test_a_long_log_is_moved_under_its_writers(tmp_path: Path) -> None:
    """A log that has grown too long is set aside while processes go on appending to the same file."""
    log = tmp_path / "stack.log"
    with log.open("a") as writer:
        writer.write("123456\n")
        writer.flush()
        assert rotate(log, max_bytes=5)
        writer.write("next\n")
    assert log.read_text() == "next\n"
    assert (tmp_path / "stack.log.1").read_text() == "123456\n"


def test_tail_begins_where_the_process_began(tmp_path: Path) -> None:
    """The end of the log shows nothing from before the process was started."""
    log = tmp_path / "stack.log"
    log.write_text("old\nnew 1\nnew 2\n")
    assert tail(log, since=4) == "  new 1\n  new 2"
    assert tail(log, lines=1) == "  new 2"
    assert tail(tmp_path / "none") == ""


def test_the_reason_is_that_of_the_last_error(tmp_path: Path) -> None:
    """The reason for a death is the `reason` of the last logged error; other lines are passed over."""
    log = tmp_path / "stack.log"
    log.write_text(
        '{"level": "error", "reason": "first"}\n{"level": "error", "reason": "second"}\n'
        'not JSON\n["reason"]\n{"level": "info", "reason": "none"}\n'
    )
    assert find_reason(log) == "second"
    assert find_reason(log, since=log.stat().st_size) is None
