"""relay.audio.one_core: encoders without threads of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.audio.encoding import make_encoder
from relay.audio.formats import parse_format

TASKS = Path("/proc/self/task")


@pytest.mark.skipif(not TASKS.exists(), reason="this system does not tell its threads")
@pytest.mark.parametrize("name", ["mp3_24000_64", "opus_48000_64", "aac_44100_64", "flac_24000"])
def test_an_encoder_takes_no_threads(name: str) -> None:
    """A hundred listeners are not a hundred times the machine's cores."""
    make_encoder(parse_format(name)).encode(bytes(9600))
    before = len(list(TASKS.iterdir()))
    encoders = [make_encoder(parse_format(name)) for _ in range(8)]
    for encoder in encoders:
        encoder.encode(bytes(9600))
    assert len(list(TASKS.iterdir())) == before
