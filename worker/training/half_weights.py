"""Weights kept in half precision, which halves a bundle; a Cast brings them back when the graph is loaded.

ONNX Runtime folds the casts into constants, so the arithmetic is in single precision and as fast as before.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_SMALLEST = 1024
"""Weights of fewer numbers stay as they are: they are biases and scales, and save nothing."""
_SUFFIX = "_half"


def halve_weights(path: Path) -> int:
    """Store the large float32 weights of a graph as float16, in place; returns how many. Doing it twice does no harm.

    Raises ValueError when a weight is no number or beyond what half precision can hold; the file stays as it was then.
    """
    model = onnx.load(path)
    large = [
        weight
        for weight in model.graph.initializer
        if weight.data_type == TensorProto.FLOAT and np.prod(weight.dims) >= _SMALLEST
    ]
    for place, weight in enumerate(large):
        model.graph.initializer.remove(weight)
        model.graph.initializer.append(_halve(weight))
        cast = helper.make_node("Cast", [weight.name + _SUFFIX], [weight.name], to=TensorProto.FLOAT)
        model.graph.node.insert(place, cast)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return len(large)


def _halve(weight: TensorProto) -> TensorProto:
    values = numpy_helper.to_array(weight)
    if not np.isfinite(values).all():
        raise ValueError(f"weight {weight.name} holds a number that is not finite")
    if np.abs(values).max() > np.finfo(np.float16).max:
        raise ValueError(f"weight {weight.name} reaches {np.abs(values).max():g}, more than float16 can hold")
    return numpy_helper.from_array(values.astype(np.float16), weight.name + _SUFFIX)
