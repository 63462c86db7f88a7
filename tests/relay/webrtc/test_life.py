"""relay.webrtc.life."""

from __future__ import annotations

from relay.webrtc.life import CONNECT_WITHIN_S, SILENT_AFTER_S, Ending, Life


def test_a_peer_that_does_not_connect_is_let_go() -> None:
    """Fifteen seconds are enough for every candidate there is."""
    life = Life(100.0, idle_s=300.0)
    assert life.judge(100.0 + CONNECT_WITHIN_S) is None
    assert life.judge(100.1 + CONNECT_WITHIN_S) is Ending.STUCK
    life.connect(110.0)
    assert life.judge(150.0) is None


def test_only_who_has_pinged_is_missed() -> None:
    """A client without pings may be silent; one that has pinged has to go on, every three seconds."""
    life = Life(0.0, idle_s=300.0)
    life.connect(1.0)
    assert life.judge(200.0) is None
    life.ping(200.0)
    assert life.judge(200.0 + SILENT_AFTER_S) is None
    assert life.judge(200.1 + SILENT_AFTER_S) is Ending.SILENT
    life.ping(203.5)
    assert life.judge(204.0) is None


def test_a_peer_with_nothing_to_say_is_let_go() -> None:
    """Pings do not keep a place for ever."""
    life = Life(0.0, idle_s=300.0)
    life.connect(1.0)
    life.act(50.0)
    life.ping(350.0)
    assert life.judge(350.0) is None
    assert life.judge(350.5) is Ending.IDLE
