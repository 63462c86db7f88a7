"""How many bits the speech may have, from what its listener reports to have lost."""

from __future__ import annotations

from dataclasses import dataclass

CEILING = 32_000
FLOOR = 18_000
"""Bit/s. Below this libopus leaves out the copies that make up for a lost packet (in-band FEC)."""
TOO_MUCH = 0.10
LITTLE = 0.02
"""The shares lost that libwebrtc's loss-based control goes by (draft-ietf-rmcat-gcc-02, section 6)."""
LESS = 0.7
MORE = 1.05
USUAL_LOSS_PERCENT = 5
MOST_LOSS_PERCENT = 30


@dataclass(frozen=True, slots=True)
class Quality:
    """What the encoder is set to."""

    bitrate: int = CEILING
    """Bit/s."""
    loss_percent: int = USUAL_LOSS_PERCENT
    """What it prepares for: the more, the more of its bits are copies."""


def adapt(quality: Quality, lost: float) -> Quality:
    """The next setting after a report that the share `lost` (0 to 1) of the last packets did not arrive."""
    expected = round(100 * lost)
    if lost > TOO_MUCH:
        bitrate = max(FLOOR, int(quality.bitrate * LESS))
        return Quality(bitrate, min(MOST_LOSS_PERCENT, max(quality.loss_percent, expected)))
    if lost < LITTLE:
        bitrate = min(CEILING, int(quality.bitrate * MORE))
        # By one at a time: loss comes in waves, and the copies are cheap.
        return Quality(bitrate, max(USUAL_LOSS_PERCENT, quality.loss_percent - 1))
    return Quality(quality.bitrate, max(quality.loss_percent, min(MOST_LOSS_PERCENT, expected)))
