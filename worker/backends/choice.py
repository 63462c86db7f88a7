"""Which backend runs the models: the one that was asked for, or the fastest of those that are there."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from worker.backends.graph import Backend
from worker.backends.onnx import OnnxBackend
from worker.errors import BackendUnavailable
from worker.sv2tts.speech import SpeechModel

log = structlog.get_logger()

ROWS_TO_MEASURE = 16
FALLBACK = "cpu"
_ON_GPU = ("tensorrt", "cuda", "torch")


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that is loaded, what runs it, and why nothing else does."""

    name: str
    model: SpeechModel
    passed_over: Mapping[str, str]


def choose_backend(asked: str, threads: int, load: Callable[..., SpeechModel]) -> Choice:
    """Load the model with the backend that was asked for; `auto` measures a step of sixteen sentences with each.

    What cannot be used is passed over with its reason in the log, down to ONNX Runtime on the CPU.
    """
    passed_over: dict[str, str] = {}
    measured: dict[str, tuple[float, SpeechModel]] = {}
    if asked == "auto" and not has_gpu():
        asked, passed_over = FALLBACK, dict.fromkeys(_ON_GPU, "this machine has no driver for an NVIDIA GPU")
    for name in BACKENDS if asked == "auto" else dict.fromkeys((asked, FALLBACK)):
        if asked in measured:
            break
        try:
            model = load(backend=BACKENDS[name](threads))
            # The first run of a shape allocates, or compiles, what the second one is measured with.
            model.warm_up(ROWS_TO_MEASURE)
            measured[name] = model.warm_up(ROWS_TO_MEASURE)[0], model
        except BackendUnavailable as error:
            passed_over[name] = str(error)
            if asked == name:
                log.warning("falling back", reason=str(error), backend=FALLBACK)
    if not measured:
        raise BackendUnavailable(FALLBACK, passed_over[FALLBACK], "see the reason")
    best = min(measured, key=lambda name: measured[name][0])
    slower = {name: f"a step takes {seconds * 1e3:.1f} ms" for name, (seconds, _) in measured.items() if name != best}
    return Choice(best, measured[best][1], passed_over | slower)


def has_gpu() -> bool:
    """Whether the driver of an NVIDIA GPU is there: without it nothing large need be imported to find out."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _torch(threads: int) -> Backend:
    from worker.backends.pytorch import TorchBackend

    return TorchBackend(threads)


BACKENDS: Mapping[str, Callable[[int], Backend]] = {
    "tensorrt": lambda threads: OnnxBackend("tensorrt", threads),
    "cuda": lambda threads: OnnxBackend("cuda", threads),
    "torch": _torch,
    "cpu": lambda threads: OnnxBackend("cpu", threads),
}
