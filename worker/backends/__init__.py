"""What runs a bundle's graphs: ONNX Runtime on CPU or GPU, or PyTorch, behind one interface."""
