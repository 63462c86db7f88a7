"""An upload's bytes to mono samples at 16 kHz, by a process that can do nothing but compute (:mod:`.confinement`).

The file stays in memory: it goes to the process and comes back through pipes.
"""

from __future__ import annotations

import json
import signal
import sys

import numpy as np

from worker.enrolment.confinement import CPU_S, MEMORY_BYTES
from worker.enrolment.exchange import Answer, ask
from worker.enrolment.file_kinds import choose_container, refuse_damage
from worker.enrolment.gathering import MAX_UPLOAD_S, SAMPLE_RATE, Decoded
from worker.errors import RecordingError

TIMEOUT_S = 30.0
"""Seconds a decoder may take by the clock: three times its processor time, for a machine that has other work."""

COMMAND = (sys.executable, "-I", "-B", "-m", "worker.enrolment.decoder")
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""All that the decoder is told; nothing of our own environment."""

_HEAD_BYTES = 4096
_SAMPLE_BYTES = 4
_MOST_LETTERS = 40
_MOST_MESSAGE = 500
_MOST_BYTES = _HEAD_BYTES + (MAX_UPLOAD_S + 1) * SAMPLE_RATE * _SAMPLE_BYTES
_FAILED = "the recording could not be decoded here"


def decode(data: bytes, *, timeout_s: float = TIMEOUT_S) -> Decoded:
    """Decodes WAV, FLAC, Ogg, MP3, MP4 (M4A) or WebM.

    Raises:
        RecordingError: not such a file, damaged, longer than `MAX_UPLOAD_S`, without samples, with samples that
            are not numbers, with a rate or a number of channels that is not taken, or taking more memory or time than
            a recording can need; `enrolment_failed` where this machine is at fault.
    """
    choose_container(data)
    try:
        answer = ask(COMMAND, data, environment=ENVIRONMENT, most_bytes=_MOST_BYTES, timeout_s=timeout_s)
    except OSError as error:
        raise RecordingError("enrolment_failed", f"{_FAILED}: no decoder could be started; enrol it again") from error
    if answer.late:
        raise RecordingError(
            "enrolment_failed",
            f"{_FAILED} within {timeout_s:.0f} s; enrol it again, as 16 bit WAV if it fails once more",
        )
    if answer.status == -signal.SIGKILL and not answer.overflowed:
        raise RecordingError("enrolment_failed", f"{_FAILED}: the decoder was killed; enrol it again")
    if answer.status or answer.overflowed:
        raise refuse_damage(_explain(answer))
    return _parse(answer.output)


def _explain(answer: Answer) -> str:
    if answer.overflowed:
        return "it decodes to more than it says"
    if answer.status == -signal.SIGXCPU:
        return f"it takes more than {CPU_S} s of a processor"
    # A library that meets the bound of its memory does not always say so before it falls.
    return f"its decoder fell, having {MEMORY_BYTES >> 20} MiB"


def _parse(output: bytes) -> Decoded:
    """The decoder's answer, not trusted: a stranger's file may have written it, should the decoder have a hole."""
    head, _, body = output.partition(b"\n")
    try:
        said = json.loads(head[:_HEAD_BYTES])
        if "code" in said:
            raise _refuse(str(said["code"]), str(said["message"]))
        samples = np.frombuffer(body, "<f4").astype(np.float32)
        if not (np.abs(samples) <= 1).all():
            raise ValueError("samples beyond full scale, or no numbers")
        share = min(max(float(said["flat_share"]), 0.0), 1.0)
        return Decoded(
            samples,
            str(said["source_format"])[:_MOST_LETTERS],
            int(said["source_rate"]),
            int(said["source_channels"]),
            share,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise refuse_damage("its decoder gave no answer") from error


def _refuse(code: str, message: str) -> RecordingError:
    if not code.startswith("recording_"):
        raise ValueError("an error that is none of a recording")
    return RecordingError(code[:_MOST_LETTERS], message[:_MOST_MESSAGE])
