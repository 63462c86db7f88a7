"""Export of the published GE2E encoder weights to ONNX.

`python -m worker.training.encoder_export WEIGHTS.pt encoder.onnx` reads the PyTorch checkpoint of Resemblyzer 0.1.4
(Apache-2.0) and writes the same network as a graph: `mel` float32[batch, frames, 40] -> `embedding`
float32[batch, 256].
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

HIDDEN = 256
LAYERS = 3
MELS = 40
OPSET = 17

Weights = Mapping[str, NDArray[np.float32]]


def read_weights(path: Path) -> Weights:
    """Arrays of the checkpoint's model state by name."""
    state = torch.load(path, map_location="cpu", weights_only=False)["model_state"]
    return {name: value.numpy() for name, value in state.items()}


def reorder_gates(stacked: NDArray[np.float32]) -> NDArray[np.float32]:
    """PyTorch stacks the gates input, forget, cell, output; ONNX wants input, output, forget, cell."""
    gate_in, forget, cell, out = np.split(stacked, 4)
    return np.concatenate([gate_in, out, forget, cell])


def lstm_tensors(weights: Weights, layer: int) -> list[TensorProto]:
    """Initializers W, R and B of one LSTM layer."""
    inputs, recurrent, bias_in, bias_rec = (
        reorder_gates(weights[f"lstm.{name}_l{layer}"]) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    arrays = {"W": inputs, "R": recurrent, "B": np.concatenate([bias_in, bias_rec])}
    return [numpy_helper.from_array(array[None], f"{name}{layer}") for name, array in arrays.items()]


def build_model(weights: Weights) -> onnx.ModelProto:
    """The network as an ONNX model with a dynamic batch and a dynamic number of frames."""
    tensors = [
        numpy_helper.from_array(weights["linear.weight"], "projection"),
        numpy_helper.from_array(weights["linear.bias"], "offset"),
        numpy_helper.from_array(np.array([1], np.int64), "direction"),
        numpy_helper.from_array(np.array([0], np.int64), "first"),
    ]
    nodes = [helper.make_node("Transpose", ["mel"], ["layer0"], perm=[1, 0, 2])]
    for layer in range(LAYERS):
        tensors += lstm_tensors(weights, layer)
        names = [f"layer{layer}", f"W{layer}", f"R{layer}", f"B{layer}"]
        nodes.append(helper.make_node("LSTM", names, [f"all{layer}", f"last{layer}"], hidden_size=HIDDEN))
        nodes.append(helper.make_node("Squeeze", [f"all{layer}", "direction"], [f"layer{layer + 1}"]))
    nodes += [
        helper.make_node("Squeeze", [f"last{LAYERS - 1}", "first"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "projection", "offset"], ["projected"], transB=1),
        helper.make_node("Relu", ["projected"], ["positive"]),
        helper.make_node("LpNormalization", ["positive"], ["embedding"], axis=1, p=2),
    ]
    return wrap_graph(nodes, tensors)


def wrap_graph(nodes: list[onnx.NodeProto], tensors: list[TensorProto]) -> onnx.ModelProto:
    """A checked model of these nodes; the last layer's unused sequence output is dropped."""
    nodes = [node for node in nodes if f"layer{LAYERS}" not in node.output]
    mel = helper.make_tensor_value_info("mel", TensorProto.FLOAT, ["batch", "frames", MELS])
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", HIDDEN])
    graph = helper.make_graph(nodes, "speaker_encoder", [mel], [embedding], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main(arguments: list[str]) -> None:
    """Command line: checkpoint, output file."""
    onnx.save(build_model(read_weights(Path(arguments[0]))), arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
