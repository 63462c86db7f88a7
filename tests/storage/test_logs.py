"""storage.logs, in a process of its own as every service has it."""

from __future__ import annotations

import json
import subprocess
import sys

WITHHELD = """
import logging, structlog
from pydantic import SecretBytes as PydanticBytes, SecretStr
from storage.encryption.secrets import SecretBytes
from storage.logs import configure_logs
configure_logs("relay", "INFO")
held = [SecretBytes(b"hush-1"), SecretStr("hush-2"), PydanticBytes(b"hush-3"), b"hush-4", bytearray(b"hush-5"),
        memoryview(b"hush-6"), {"deep": [(b"hush-7",)]}, {b"hush-8": 1}]
for value in held:
    structlog.get_logger("relay.x").info("held", anything=value, count=3)
    logging.getLogger("some.library").info("got %s", value)
logging.getLogger("some.library").info("got %(it)s", {"it": b"hush-9"})
try:
    raise ValueError(SecretBytes(b"hush-10"))
except ValueError:
    structlog.get_logger("relay.x").exception("failed")
    logging.getLogger("some.library").exception("failed")
"""

PROGRAM = """
import logging, structlog
from storage.logs import configure_logs
configure_logs("relay", "DEBUG")
logging.getLogger("websockets.server").debug("< authorization: Bearer tr_secret")
logging.getLogger("relay.speaking.hub").debug("ours")
logging.getLogger("aioice.ice").info("Check CandidatePair(('192.0.2.7', 51777) -> ('192.0.2.8', 46847)) SUCCEEDED")
structlog.get_logger("relay.x").info("said", text="my secret pin", key="tr_secret", voice="v")
"""


def test_no_level_lets_a_key_or_a_text_into_the_log() -> None:
    """Libraries stay at INFO whatever is asked for, and fields that could hold a secret are withheld."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    assert "secret" not in done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["event"] for event in events] == ["ours", "said"]
    assert (events[1]["text"], events[1]["voice"], events[1]["process"]) == ("[withheld]", "v", "relay")


def test_secrets_and_bytes_are_withheld_by_their_type() -> None:
    """A secret does not get into a line through any field, however deep, nor through a library or an error."""
    done = subprocess.run([sys.executable, "-c", WITHHELD], capture_output=True, text=True, check=True, timeout=30)
    assert "hush" not in done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(events) == 19
    assert all("ValueError: SecretBytes(" in event["exception"] for event in events[-2:])
    assert all(event["count"] == 3 for event in events if event["event"] == "held")
