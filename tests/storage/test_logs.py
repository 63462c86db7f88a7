"""storage.logs, in a process of its own as every service has it."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging, structlog
from storage.logs import configure_logs
configure_logs("relay", "DEBUG")
logging.getLogger("websockets.server").debug("< authorization: Bearer tr_secret")
logging.getLogger("relay.hub").debug("ours")
structlog.get_logger("relay.x").info("said", text="my secret pin", key="tr_secret", voice="v")
"""


def test_no_level_lets_a_key_or_a_text_into_the_log() -> None:
    """Libraries stay at INFO whatever is asked for, and fields that could hold a secret are withheld."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    assert "secret" not in done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["event"] for event in events] == ["ours", "said"]
    assert (events[1]["text"], events[1]["voice"], events[1]["process"]) == ("[withheld]", "v", "relay")
