"""How natural speech sounds to models that were trained on people's opinions; no reference is needed.

Both come from packages that are not part of the product. Without a package its figure is left out.
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np

from worker.sv2tts.mel import Floats

Judge = Callable[[Floats], float]
"""Opinion (1 to 5) of mono float32[N] at 16 kHz."""

_DNSMOS_SAMPLES = int(9.01 * 16000)
_DNSMOS_HOP = 16000
_DNSMOS_WINDOWS = 3
_OVERALL = (-0.06766283, 1.11546468, 0.04602535)


def load_distillmos() -> Judge | None:
    """DistillMOS (Stahl and Gamper, 2025), or None without the packages `distillmos` and `torch`.

    It imports torchaudio for its own command line only; an empty module stands in where that is not installed.
    """
    if importlib.util.find_spec("distillmos") is None or importlib.util.find_spec("torch") is None:
        return None
    if "torchaudio" not in sys.modules and importlib.util.find_spec("torchaudio") is None:
        sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    model = importlib.import_module("distillmos").ConvTransformerSQAModel().eval()

    def judge(samples: Floats) -> float:
        with torch.no_grad():
            return float(model(torch.from_numpy(samples)[None])[0])

    return judge


def load_dnsmos() -> Judge | None:
    """The overall opinion of DNSMOS P.835 (Reddy et al., 2022), or None without the package `speechmos`.

    Only its graph is used: its Python needs a dozen packages for a score that is not asked for. Speech is repeated to
    9.01 s, longer speech is judged in three windows (the published code has one every second, which costs ten times as
    much for hardly another score); the polynomial maps the graph's score to the scale of the published figures.
    """
    spec = importlib.util.find_spec("speechmos")
    if spec is None or spec.origin is None:
        return None
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    path = Path(spec.origin).parent / "dnsmos_models" / "sig_bak_ovr.onnx"
    session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def judge(samples: Floats) -> float:
        windows = cut_windows(np.clip(samples, -1.0, 1.0))
        raw = [float(session.run(None, {"input_1": window[None]})[0][0][2]) for window in windows]
        return float(np.mean(np.polyval(_OVERALL, raw)))

    return judge


def cut_windows(samples: Floats) -> list[Floats]:
    """Windows of 9.01 s at 16 kHz, whole seconds apart and at most three; shorter speech is doubled until it fills
    one."""
    while 0 < len(samples) < _DNSMOS_SAMPLES:
        samples = np.concatenate([samples, samples])
    starts = range(0, len(samples) - _DNSMOS_SAMPLES + 1, _DNSMOS_HOP)
    kept = starts[:: max(1, -(-len(starts) // _DNSMOS_WINDOWS))]
    return [samples[start : start + _DNSMOS_SAMPLES].astype(np.float32) for start in kept]
