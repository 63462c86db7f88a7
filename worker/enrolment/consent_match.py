"""Whether a spoken consent is by the person of the sample: the cosine of their GE2E voiceprints.

The threshold is measured by `python -m worker.enrolment.calibration` with statements of 4 to 8 s against other
recordings. Of four people of LibriSpeech test-other, 0 of 240 pairs of one person are refused; of them and 191 others,
599 of 49,712 pairs of two persons (1.2 %) pass; the equal error rate is 0.42 %, at 0.779. The threshold lies below, for
a consent that was recorded with another device or in another room. Four people are few: docs/enrolment.md has more.
A match says that two voices are alike, not who somebody is.
"""

from __future__ import annotations

import numpy as np

from worker.errors import RecordingError
from worker.sv2tts.mel import Floats

LEAST_LIKENESS = 0.75
"""The cosine from which on two recordings are taken for one person's."""


def measure_likeness(consent: Floats, sample: Floats) -> float:
    """The cosine, -1 to 1, of two voiceprints float32 [256] of unit norm, each of a whole recording."""
    return float(np.dot(consent, sample))


def check_speaker(consent: Floats, sample: Floats) -> float:
    """The likeness of the consent's and the sample's voiceprint.

    Raises:
        RecordingError: `consent_speaker_mismatch`, with the figure and the fix.
    """
    likeness = measure_likeness(consent, sample)
    if not likeness >= LEAST_LIKENESS:
        raise RecordingError(
            "consent_speaker_mismatch",
            f"the voice of the spoken consent is like the sample's by {likeness:.2f}, {LEAST_LIKENESS:.2f} are needed;"
            " let the same person record both, with the same microphone, in a quiet room",
        )
    return likeness
