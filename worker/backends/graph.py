"""The one interface of all backends: a graph takes named arrays with a batch in front and gives named arrays back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.sv2tts.bundle import Bundle

Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input of a graph: sizes that vary are names, `batch` or `symbols` or `frames`."""

    name: str
    kind: type[np.generic]
    shape: tuple[int | str, ...]

    def zeros(self, **sizes: int) -> Array:
        """An array of zeros with the varying sizes given by name."""
        return np.zeros([size if isinstance(size, int) else sizes[size] for size in self.shape], self.kind)


class Graph(Protocol):
    """A graph that is loaded; used by one thread at a time."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What it takes, in the order of the bundle's manifest."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it gives."""

    def run(self, feed: Mapping[str, Array]) -> Arrays:
        """Every output by name; the feed may hold more than the graph takes."""


class Backend(Protocol):
    """A way to run graphs."""

    @property
    def name(self) -> str:
        """What the setting `backend` calls it."""

    def open(self, bundle: Bundle, graph: str) -> Graph:
        """Load a graph of a bundle; raises BundleError or BackendUnavailable."""
