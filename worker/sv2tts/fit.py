"""Whether the graphs of a bundle fit each other and this program: the shapes of what one gives and another takes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worker.sv2tts.source import GRIDS

VOCODERS: Mapping[str, int] = {"vocoder": 24_000, "vocoder_16k": 16_000}
"""The vocoder graphs and the sample rates inside them."""

GRAPHS = ("encoder", "synthesizer_encoder", "synthesizer_decoder", *VOCODERS)

Shape = Sequence[int | str]
"""Sizes; a name stands for one that changes from call to call."""

_Shapes = Mapping[str, Mapping[str, Mapping[str, Shape]]]

_STATE = "next_"
_PASSED_ON = ("memory", "keys", "speaker")
_SPECTRA = ("tone_real", "tone_imag", "noise")


def find_misfit(manifest: Mapping[str, Any]) -> str | None:
    """The first thing that does not fit, in words, or None.

    Raises KeyError or TypeError when the manifest has not the form of one.
    """
    shapes: _Shapes = manifest["shapes"]
    return next((reason for reason in _reasons(manifest, shapes) if reason), None)


def _reasons(manifest: Mapping[str, Any], shapes: _Shapes) -> Iterator[str | None]:
    width, bands = manifest["embedding_size"], manifest["n_mels"]
    yield _ends_with(shapes, "encoder", "outputs", "embedding", width, f"embedding_size {width}")
    yield _ends_with(shapes, "synthesizer_encoder", "inputs", "embedding", width, f"embedding_size {width}")
    for name in _PASSED_ON:
        yield _same(shapes, ("synthesizer_encoder", "outputs", name), ("synthesizer_decoder", "inputs", name))
    yield from _state_reasons(shapes, "synthesizer_decoder")
    for side, name in (("outputs", "mel"), ("inputs", "frame")):
        yield _ends_with(shapes, "synthesizer_decoder", side, name, bands, f"n_mels {bands}")
    for graph in VOCODERS:
        yield _ends_with(shapes, graph, "inputs", "mel", bands, f"n_mels {bands}")
        yield from _state_reasons(shapes, graph)
        rate = manifest["vocoders"][graph]["internal_rate"]
        for name in _SPECTRA:
            yield _ends_with(shapes, graph, "outputs", name, GRIDS[rate].bins, f"the bins at {rate} Hz")


def _state_reasons(shapes: _Shapes, graph: str) -> Iterator[str | None]:
    """What a graph gives as `next_X` it takes again as `X`."""
    for name in shapes[graph]["outputs"]:
        if name.startswith(_STATE):
            yield _same(shapes, (graph, "outputs", name), (graph, "inputs", name.removeprefix(_STATE)))


def _same(shapes: _Shapes, given: tuple[str, str, str], taken: tuple[str, str, str]) -> str | None:
    one, other = (_shape(shapes, *place) for place in (given, taken))
    if one is None or other is None:
        graph, _, name = taken if other is None else given
        return f"{graph} has no tensor {name}"
    fixed = [pair for pair in zip(one, other, strict=False) if all(isinstance(size, int) for size in pair)]
    fits = len(one) == len(other) and all(first == second for first, second in fixed)
    return None if fits else f"{given[0]} gives {given[2]} {list(one)}, but {taken[0]} takes {taken[2]} {list(other)}"


def _ends_with(shapes: _Shapes, graph: str, side: str, name: str, size: int, meaning: str) -> str | None:
    shape = _shape(shapes, graph, side, name)
    if shape and shape[-1] == size:
        return None
    verb = "takes" if side == "inputs" else "gives"
    return f"{graph} {verb} {name} {list(shape or [])}, which must end with {size}, {meaning}"


def _shape(shapes: _Shapes, graph: str, side: str, name: str) -> Shape | None:
    return shapes[graph][side].get(name)
