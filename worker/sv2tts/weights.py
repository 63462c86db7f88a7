"""The weights inside a file of a bundle: are they numbers at all?

One NaN in a matrix is enough for noise in place of a voice, and no checksum tells. The two kinds of file are read just
far enough to look at every floating-point weight, without the packages that write them.

A graph is a protocol buffer (protobuf.dev/programming-guides/encoding; the field numbers are those of onnx.proto):
nested fields, of which only the way down to the tensors is followed.
"""

import json
from collections.abc import Iterator

import numpy as np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10

_MODEL_GRAPH = 7
_PATHS_TO_TENSORS = ((5,), (1, 5, 5))
"""From a graph: its initializers; and of its nodes the attributes that are tensors."""
_TENSOR_TYPE, _TENSOR_FLOATS, _TENSOR_INTS, _TENSOR_NAME, _TENSOR_RAW, _TENSOR_DOUBLES = 2, 4, 5, 8, 9, 10
_TENSOR_EXTERNAL = 13
_TYPES = {1: "<f4", 10: "<f2", 11: "<f8", 16: "bfloat16"}
_SAFE_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "bfloat16"}

Field = tuple[int, int | memoryview]


def find_unfit_weight(name: str, content: bytes) -> str | None:
    """What is wrong with the weights of a file called `name` (.onnx or .safetensors), or None.

    Raises ValueError when the file cannot be read as what its name says.
    """
    try:
        return _look_into_graph(content) if name.endswith(".onnx") else _look_into_weights(content)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{type(problem).__name__} while reading") from problem


def _look_into_graph(content: bytes) -> str | None:
    graphs = list(_descend(memoryview(content), (_MODEL_GRAPH,)))
    if not graphs:
        raise ValueError("there is no graph in it")
    for path in _PATHS_TO_TENSORS:
        for tensor in _descend(graphs[0], path):
            fault = _look_into_tensor(tensor)
            if fault:
                return fault
    return None


def _look_into_tensor(tensor: memoryview) -> str | None:
    fields = list(_fields(tensor))
    named = dict(fields)
    name = bytes(_block(named.get(_TENSOR_NAME, memoryview(b"")))).decode()
    kind = _TYPES.get(_number(named.get(_TENSOR_TYPE, 0)))
    if _TENSOR_EXTERNAL in named:
        return f"weight {name} lies in another file"
    if kind and _TENSOR_INTS in named:
        return f"weight {name} is stored in a form that this program does not look into"
    kinds = {_TENSOR_RAW: kind, _TENSOR_FLOATS: "<f4", _TENSOR_DOUBLES: "<f8"}
    values = ((kinds[number], _block(value)) for number, value in fields if kinds.get(number))
    finite = all(_is_finite(value, kind) for kind, value in values if kind)
    return None if finite else f"weight {name} holds a number that is not finite"


def _is_finite(value: memoryview, kind: str) -> bool:
    if kind == "bfloat16":
        return not (np.frombuffer(value, "<u2") & 0x7F80 == 0x7F80).any()
    return bool(np.isfinite(np.frombuffer(value, kind)).all())


def _descend(message: memoryview, path: tuple[int, ...]) -> Iterator[memoryview]:
    """The messages at the end of a path of field numbers."""
    for number, value in _fields(message):
        if number == path[0]:
            block = _block(value)
            yield from _descend(block, path[1:]) if len(path) > 1 else iter((block,))


def _fields(message: memoryview) -> Iterator[Field]:
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            length, place = _varint(message, place)
        if length is None or place + length > len(message):
            raise ValueError("it is damaged or no graph at all")
        yield number, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = message[place + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, place + index + 1
    raise ValueError("it is damaged or no graph at all")


def _block(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("it is damaged or no graph at all")
    return value


def _number(value: int | memoryview) -> int:
    if isinstance(value, memoryview):
        raise ValueError("it is damaged or no graph at all")
    return value


def _look_into_weights(content: bytes) -> str | None:
    """The layout of safetensors: eight bytes of length, a JSON header, then the numbers."""
    length = int.from_bytes(content[:8], "little")
    header, numbers = json.loads(content[8 : 8 + length]), memoryview(content)[8 + length :]
    for name, entry in header.items():
        kind = _SAFE_TYPES.get(entry.get("dtype"))
        if kind:
            first, last = entry["data_offsets"]
            if last > len(numbers):
                raise ValueError(f"weight {name} is cut off")
            if not _is_finite(numbers[first:last], kind):
                return f"weight {name} holds a number that is not finite"
    return None
