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
    if asked == "auto" and not has_gpu():
        asked, passed_over = FALLBACK, dict.fromkeys(_ON_GPU, "this machine has no driver for an NVIDIA GPU")
    loaded: dict[str, SpeechModel] = {}
    for name in BACKENDS if asked == "auto" else dict.fromkeys((asked, FALLBACK)):
        if asked in loaded:
            break
        try:
            loaded[name] = load(backend=BACKENDS[name](threads))
        except BackendUnavailable as error:
            passed_over[name] = str(error)
            if asked == name:
                log.warning("falling back", reason=str(error), backend=FALLBACK)
    if not loaded:
        raise BackendUnavailable(FALLBACK, passed_over[FALLBACK], "see the reason")
    seconds = (
        {name: _measure(model) for name, model in loaded.items()} if len(loaded) > 1 else dict.fromkeys(loaded, 0.0)
    )
    best = min(seconds, key=lambda name: seconds[name])
    slower = {name: f"a step takes {1e3 * seconds[name]:.1f} ms" for name in seconds if name != best}
    return Choice(best, loaded[best], passed_over | slower)


def _measure(model: SpeechModel) -> float:
    """Seconds a step takes. The first run of a shape allocates, or compiles, what the next ones are measured with."""
    model.warm_up(ROWS_TO_MEASURE)
    return model.warm_up(ROWS_TO_MEASURE)[0]


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
