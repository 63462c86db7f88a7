"""Whether one person speaks in a recording or several: how alike its stretches of 1.6 s are to each other.

Of one person even the less alike pairs of stretches are alike; with two persons a good part of the pairs are of two
voices, and the lower quartile falls. Pauses are cut out first: a stretch with a pause in it is like nobody.
"""

from __future__ import annotations

import numpy as np

from worker.enrolment.gathering import Samples
from worker.errors import RecordingError
from worker.sv2tts.encoder import SpeakerEncoder

LEAST_UNITY = 0.6
"""The unity below which a recording is taken for one of several persons."""

_STEP_FRAMES = 20
_APART = 8
"""Windows from which on two stretches do not overlap: 1.6 s."""

_LEAST_PAIRS = 10
_QUARTILE = 25


def measure_unity(encoder: SpeakerEncoder, voice: Samples) -> float:
    """The lower quartile of the cosines between stretches of speech that do not overlap, of float32 [N] without pauses.

    Below four seconds there are too few stretches to tell: then it is one.
    """
    windows = encoder.embed_every(voice, _STEP_FRAMES)
    rows, columns = np.triu_indices(len(windows), _APART)
    if len(rows) < _LEAST_PAIRS:
        return 1.0
    return float(np.percentile((windows @ windows.T)[rows, columns], _QUARTILE))


def check_unity(unity: float) -> None:
    """Raises RecordingError, `recording_several_speakers`, when more than one person is to be heard."""
    if unity < LEAST_UNITY:
        raise RecordingError(
            "recording_several_speakers",
            f"more than one voice is to be heard: stretches of the recording are alike by {unity:.2f},"
            f" those of one person by {LEAST_UNITY:.2f} or more; send 5 to 10 s of one person, without others behind",
        )
