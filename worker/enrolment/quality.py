"""How good a recording is to make a voice of: a score from 0 to 100, and what it is made of.

Each part rises from 0 to 1 between two figures; the score is 100 times their weighted mean:

    part        from            to              weight  why
    noise       12 dB           30 dB (SNR)     0.40    noise moves the voiceprint more than anything else
    duration    3 s             10 s of speech  0.25    the voiceprint is a mean, and gets steadier with more
    bandwidth   3.4 kHz         7.5 kHz         0.20    a telephone's band has lost part of the voice
    clipping    1 % of samples  none            0.15    what is cut off sounds hoarse

The lower figures are those at which a recording is refused, or a telephone line's for the bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SNR_DB = 12.0
MIN_SPEECH_S = 3.0
MAX_FLAT_SHARE = 0.01

_BEST_SNR_DB = 30.0
_BEST_SPEECH_S = 10.0
_TELEPHONE_HZ, _WIDE_HZ = 3_400.0, 7_500.0
_NOISE, _DURATION, _BANDWIDTH, _CLIPPING = 0.40, 0.25, 0.20, 0.15


@dataclass(frozen=True, slots=True)
class Quality:
    """The score's figures: speech over noise in dB, seconds of speech, the share (0-1) of flat tops, Hz."""

    snr_db: float
    speech_s: float
    flat_share: float
    bandwidth_hz: float

    @property
    def noise(self) -> float:
        """From 0 (as noisy as is taken) to 1 (no noise to be heard)."""
        return _rise(self.snr_db, LEAST_SNR_DB, _BEST_SNR_DB)

    @property
    def duration(self) -> float:
        """From 0 (as short as is taken) to 1 (all that helps)."""
        return _rise(self.speech_s, MIN_SPEECH_S, _BEST_SPEECH_S)

    @property
    def bandwidth(self) -> float:
        """From 0 (a telephone line's) to 1 (all that the encoder hears)."""
        return _rise(self.bandwidth_hz, _TELEPHONE_HZ, _WIDE_HZ)

    @property
    def clipping(self) -> float:
        """From 0 (as much cut off as is taken) to 1 (nothing cut off)."""
        return 1.0 - _rise(self.flat_share, 0.0, MAX_FLAT_SHARE)

    @property
    def score(self) -> int:
        """0 to 100."""
        mean = _NOISE * self.noise + _DURATION * self.duration + _BANDWIDTH * self.bandwidth + _CLIPPING * self.clipping
        return round(100 * mean)


def _rise(figure: float, low: float, high: float) -> float:
    return min(max((figure - low) / (high - low), 0.0), 1.0)
